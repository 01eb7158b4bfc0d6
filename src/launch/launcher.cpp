#include <muster/cluster/environment.hpp>
#include <muster/launch/init.hpp>
#include <muster/launch/launcher.hpp>

#include <fmt/format.h>

#include "../process/program.hpp"
#include "../process/rank.hpp"

namespace muster {

namespace {

constexpr int most_ranks = 4096;

/// Launching is possible here at all. Throws UsageError.
void check_process() {
  if (in_rank() && !process::joined_world())
    throw UsageError("launch inside a rank: ranks start no ranks of their own");
  if (!process::Program::get())
    throw UsageError(
        "launch without init: make `muster::init(argc, argv);` the first line of main");
  if (!in_rank() && EnvSnapshot::current().find(process::job_variable))
    throw UsageError(fmt::format("launch in a process that a rank of a muster job started ({} is "
                                 "set): unset it there to run a job inside a job",
                                 process::job_variable));
}

/// In a world that others created, nprocs must be what they created.
void check_size(const World& world, std::optional<int> nprocs) {
  const bool fits =
      !nprocs || *nprocs == world.local_size || (world.node_count == 1 && *nprocs == world.size);
  if (!fits)
    throw UsageError(fmt::format("nprocs is {}, but {} created {} ranks on this host ({} in all): "
                                 "leave nprocs unset, or make them equal",
                                 *nprocs,
                                 world.source,
                                 world.local_size,
                                 world.size));
}

/// Does the work in this process, which others created as a rank.
JobReport run_inline(const Work& work, World world) {
  RankReport rank;
  rank.rank = world.rank;
  rank.local_rank = world.local_rank;
  rank.pid = ::getpid();
  rank.result = Blob::create("muster-result");
  Reader arguments(work.arguments);
  Writer result(rank.result);
  detail::Call call{address_of(work.function), world, arguments, result};
  process::call_inside(reinterpret_cast<detail::Thunk>(address_of(work.thunk)), call);
  result.finish();
  rank.outcome = Outcome::succeeded;
  JobReport report;
  report.attempt = world.attempt;
  report.ranks.push_back(std::move(rank));
  return report;
}

} // namespace

Launcher::Launcher(StartMethod start_method, std::optional<int> nprocs, LaunchOptions options)
    : start_method_(start_method), nprocs_(nprocs), options_(std::move(options)) {
  if (nprocs_ && (*nprocs_ < 1 || *nprocs_ > most_ranks))
    throw UsageError(fmt::format("nprocs is {}: it must be from 1 to {}", *nprocs_, most_ranks));
}

Task Launcher::plan() const {
  Task task;
  const int count = nprocs_.value_or(1);
  for (int local = 0; local < count; ++local) {
    RankSpec spec;
    spec.rank = options_.nodes.rank * count + local;
    spec.local_rank = local;
    task.ranks.push_back(std::move(spec));
  }
  return task;
}

void Launcher::launch(Work work) {
  check_process();
  const World* joined = process::joined_world();
  auto world = joined ? std::optional(*joined) : detect_world(EnvSnapshot::current());
  if (!world)
    return start(std::move(work));
  check_size(*world, nprocs_);
  if (process::joined_part() == process::Part::launch)
    process::become_rank(work);
  last_report_ = run_inline(work, *std::move(world));
}

void Launcher::start(std::variant<Work, Command> work) {
  check_process();
  if (std::holds_alternative<Command>(work) && in_rank())
    throw UsageError(
        fmt::format("a program launched inside a rank: ranks start no ranks of their own; "
                    "to run a job inside a job, unset {} and {} for it",
                    process::job_variable,
                    process::channel_variable));
  Task task = plan();
  task.work = std::move(work);
  last_report_ = spawn(std::move(task));
  if (last_report_.ok())
    return;
  if (last_report_.first_failure())
    throw RankFailure(last_report_);
  if (last_report_.timed_out)
    throw Timeout(last_report_.reason);
  throw Interrupted(last_report_);
}

} // namespace muster
