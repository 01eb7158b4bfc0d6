#include <muster/launch/spawn_launcher.hpp>

#include <algorithm>
#include <cstdlib>
#include <set>
#include <thread>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <fmt/format.h>

#include "../process/birth.hpp"
#include "../process/exec.hpp"
#include "../process/guards.hpp"
#include "../process/memory_policy.hpp"
#include "../process/program.hpp"
#include "../process/supervisor.hpp"
#include "../process/sys.hpp"
#include "contract.hpp"
#include "cpus.hpp"

namespace muster {

namespace {

using process::Fd;
using process::Program;

std::string random_token() {
  std::uint64_t words[2] = {};
  [[maybe_unused]] const ssize_t size = ::getrandom(words, sizeof words, 0);
  return fmt::format("{:016x}{:016x}", words[0], words[1]);
}

/// A port for programs that open a store of their own: the kernel gives it to nobody else while the
/// socket lives, and a store that sets SO_REUSEADDR, as torch's does, can listen on it.
class ReservedPort {
public:
  ReservedPort()
      : socket_(process::sys::checked(
            "socket", [] { return ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0); })) {
    const int on = 1;
    ::setsockopt(socket_.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = ::htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    auto* generic = reinterpret_cast<sockaddr*>(&address);
    process::sys::checked("reserving a port", [&] { return ::bind(socket_.get(), generic, size); });
    ::getsockname(socket_.get(), generic, &size);
    port_ = ::ntohs(address.sin_port);
  }

  int port() const { return port_; }
  int fd() const { return socket_.get(); }

private:
  Fd socket_;
  int port_ = 0;
};

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

void check_ranks(const Task& task, StartMethod method) {
  if (task.ranks.empty())
    throw UsageError("a task without ranks: use the one that Launcher::plan made");
  for (std::size_t i = 0; i < task.ranks.size(); ++i) {
    const RankSpec& spec = task.ranks[i];
    const auto expected = static_cast<int>(i);
    if (spec.rank != expected || spec.local_rank != expected)
      throw UsageError(fmt::format("a task's rank {} (local rank {}) stands where rank {} belongs",
                                   spec.rank,
                                   spec.local_rank,
                                   expected));
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

void check_task(const Task& task, StartMethod method) {
  if (!Program::get())
    throw UsageError(
        "launch without init: make `muster::init(argc, argv);` the first line of main");
  if (!task.work.arguments)
    throw UsageError("a task without work: Launcher::run and Strategy::launch make it");
  check_ranks(task, method);
  check_module(task.work.thunk, method);
  check_module(task.work.function, method);
  if (method == StartMethod::fork) {
    process::require_no_cuda();
    process::require_one_thread();
  }
  if (method == StartMethod::forkserver)
    Program::get()->fork_server();
}

process::JobPart job_part(const Task& task, const LaunchOptions& options, const JobShape& shape) {
  process::JobPart job;
  job.thunk = task.work.thunk;
  job.function = task.work.function;
  job.size = shape.size;
  job.local_size = shape.size;
  job.attempt = shape.attempt;
  job.threads = shape.threads;
  job.group_timeout_ms = options.group_timeout.count();
  return job;
}

int threads_for(const LaunchOptions& options, int ranks) {
  if (options.threads)
    return *options.threads;
  if (const char* chosen = std::getenv("OMP_NUM_THREADS"))
    return std::atoi(chosen);
  return std::max(1, usable_cpus() / ranks);
}

JobReport
run_attempt(const Task& task, StartMethod method, const LaunchOptions& options, int attempt) {
  const ReservedPort port;
  const auto size = static_cast<int>(task.ranks.size());
  const JobShape shape{.size = size,
                       .attempt = attempt,
                       .max_restarts = options.max_restarts,
                       .threads = threads_for(options, size),
                       .threads_chosen = options.threads.has_value(),
                       .port = port.port(),
                       .token = random_token()};
  process::JobPart job = job_part(task, options, shape);
  if (method == StartMethod::forkserver)
    job.state = process::process_state();
  std::vector<std::vector<std::string>> environments;
  for (const RankSpec& spec : task.ranks)
    environments.push_back(rank_environment(spec, shape));
  const auto page = process::StatusPage::create(task.ranks.size());
  process::Supervisor supervisor(options, page, shape.token);
  std::vector<int> launcher_fds = supervisor.fds();
  launcher_fds.push_back(port.fd());
  auto children = process::start_ranks(
      {method, task, job, environments, page, shape.token, std::move(launcher_fds)});
  JobReport report = supervisor.run(std::move(children), task.ranks);
  report.attempt = attempt;
  return report;
}

/// Ranks that had all been running, and one failed: worth another attempt.
bool may_restart(const JobReport& report) {
  return report.first_failure() != nullptr && !report.stopped &&
         std::none_of(report.ranks.begin(), report.ranks.end(), [](const RankReport& rank) {
           return rank.phase.starts_with("starting") || rank.phase.starts_with("decoding");
         });
}

/// Before restart `attempt`: none the first time, then 0.5 s, 1 s, ... up to 30 s.
std::chrono::milliseconds back_off(int attempt) {
  if (attempt < 2)
    return {};
  return std::min(std::chrono::milliseconds(500) * (1 << std::min(attempt - 2, 10)),
                  std::chrono::milliseconds(30'000));
}

} // namespace

JobReport SpawnLauncher::spawn(Task task) {
  check_task(task, start_method());
  for (int attempt = 0;; ++attempt) {
    std::this_thread::sleep_for(back_off(attempt));
    JobReport report = run_attempt(task, start_method(), options(), attempt);
    if (report.ok() || attempt >= options().max_restarts || !may_restart(report))
      return report;
  }
}

} // namespace muster
