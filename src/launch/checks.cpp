#include "checks.hpp"

#include <muster/launch/error.hpp>

#include <algorithm>
#include <cstring>
#include <set>

#include <unistd.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "../process/exec.hpp"
#include "../process/guards.hpp"
#include "../process/memory_policy.hpp"
#include "../process/program.hpp"

namespace muster {

namespace {

using process::Program;

/// Variables that were read when the program was loaded: a forked rank cannot change them.
bool read_at_load(const std::string& name) {
  static constexpr const char* prefixes[] = {"LD_", "OMP_", "GOMP_", "KMP_", "MKL_", "MALLOC_"};
  return name == "GLIBC_TUNABLES" ||
         std::any_of(std::begin(prefixes), std::end(prefixes), [&](const char* prefix) {
           return name.starts_with(prefix);
         });
}

void check_environment(const RankSpec& spec, StartMethod method) {
  for (const auto& [name, value] : spec.env) {
    if (name.empty() || name.find('=') != std::string::npos ||
        (name + value).find('\0') != std::string::npos)
      throw UsageError(
          fmt::format("rank {}: '{}' cannot be the name of a variable", spec.rank, name));
    if (method != StartMethod::spawn && read_at_load(name))
      throw UsageError(
          fmt::format("rank {}: {} was read when this program was loaded, so a rank started by {} "
                      "cannot change "
                      "it; use StartMethod::spawn, or LaunchOptions::threads and RankSpec::cpus",
                      spec.rank,
                      name,
                      to_string(method)));
  }
}

void check_cpus(const RankSpec& spec) {
  const auto allowed = process::allowed_cpus();
  for (const int cpu : spec.cpus)
    if (std::find(allowed.begin(), allowed.end(), cpu) == allowed.end())
      throw UsageError(fmt::format("rank {}: CPU {} is not among the {} CPUs of this process",
                                   spec.rank,
                                   cpu,
                                   allowed.size()));
}

void check_memory_nodes(const RankSpec& spec) {
  const auto allowed = process::allowed_nodes();
  for (const int node : spec.memory_nodes)
    if (node < 0 || (!allowed.empty() && !std::count(allowed.begin(), allowed.end(), node)))
      throw UsageError(
          fmt::format("rank {}: NUMA node {} is not among those that this process may "
                      "have memory from: {}",
                      spec.rank,
                      node,
                      allowed.empty() ? "0 and up" : fmt::format("{}", fmt::join(allowed, ", "))));
}

void check_files(const RankSpec& spec) {
  if (!spec.cwd.empty() && ::access((spec.cwd + "/.").c_str(), X_OK) != 0)
    throw UsageError(
        fmt::format("rank {}: its working directory '{}' is not there", spec.rank, spec.cwd));
  if (::access(spec.input.c_str(), R_OK) != 0)
    throw UsageError(
        fmt::format("rank {}: its standard input '{}' cannot be read", spec.rank, spec.input));
}

void check_ranks(const Task& task, StartMethod method, const Nodes& nodes) {
  if (task.ranks.empty())
    throw UsageError("a task without ranks: use the one that Launcher::plan made");
  const auto count = static_cast<int>(task.ranks.size());
  for (int i = 0; i < count; ++i) {
    const RankSpec& spec = task.ranks[static_cast<std::size_t>(i)];
    const int rank = nodes.rank * count + i;
    if (spec.rank != rank || spec.local_rank != i)
      throw UsageError(fmt::format(
          "a task's rank {} (local rank {}) stands where rank {} (local rank {}) belongs",
          spec.rank,
          spec.local_rank,
          rank,
          i));
    check_environment(spec, method);
    check_cpus(spec);
    check_memory_nodes(spec);
    check_files(spec);
  }
}

/// Ranks that are executed, or forked from the server, only have what was loaded at `init`.
void check_module(const Symbol& symbol, StartMethod method) {
  if (method != StartMethod::fork && !Program::get()->had_module(symbol.build_id))
    throw UsageError(
        fmt::format("the function to launch lies in {}, which was loaded after muster::init: ranks "
                    "started by {} "
                    "do not have it; load it before init, link it, or use StartMethod::fork",
                    symbol.module,
                    to_string(method)));
}

void check_work(const Work& work, StartMethod method, process::Part part) {
  if (!work.arguments)
    throw UsageError("a task without work: Launcher::run and Strategy::launch make it");
  if (part != process::Part::function)
    return; // its main brings the function
  check_module(work.thunk, method);
  check_module(work.function, method);
}

void check_options(const LaunchOptions& options, int ranks) {
  const Nodes& nodes = options.nodes;
  if (nodes.count < 1 || nodes.rank < 0 || nodes.rank >= nodes.count)
    throw UsageError(
        fmt::format("node rank {} of {}: it must be from 0 to the number of nodes less one",
                    nodes.rank,
                    nodes.count));
  if (nodes.count > 1 && (nodes.master_address.empty() || nodes.master_port == 0))
    throw UsageError("several nodes need an address and a port of node 0 that all of them know");
  if (nodes.master_port < 0 || nodes.master_port > 65535)
    throw UsageError(
        fmt::format("port {}: it must be from 1 to 65535, or 0 for a free one", nodes.master_port));
  if (options.stdin_ranks.highest() >= ranks)
    throw UsageError(fmt::format("standard input for local rank {}, but there are {} ranks",
                                 options.stdin_ranks.highest(),
                                 ranks));
  if (options.logs)
    for (const int highest : {options.logs->redirects.highest(),
                              options.logs->tee.highest(),
                              options.logs->console.highest()})
      if (highest >= ranks)
        throw UsageError(
            fmt::format("output of local rank {}, but there are {} ranks", highest, ranks));
}

} // namespace

void check_task(const Task& task,
                StartMethod method,
                process::Part part,
                const LaunchOptions& options) {
  if (!Program::get())
    throw UsageError(
        "launch without init: make `muster::init(argc, argv);` the first line of main");
  if (const Work* work = std::get_if<Work>(&task.work))
    check_work(*work, method, part);
  check_ranks(task, method, options.nodes);
  check_options(options, static_cast<int>(task.ranks.size()));
  if (method == StartMethod::fork) {
    process::require_no_cuda();
    process::require_one_thread();
  }
  if (method == StartMethod::forkserver)
    Program::get()->fork_server();
}

} // namespace muster
