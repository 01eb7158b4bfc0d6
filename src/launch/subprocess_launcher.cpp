#include <muster/launch/subprocess_launcher.hpp>

#include <algorithm>
#include <atomic>

#include <fmt/format.h>

#include "job.hpp"

namespace muster {

namespace {

std::atomic<bool> launched_itself = false;

bool runs_own_arguments(const Task& task) {
  return std::any_of(
      task.ranks.begin(), task.ranks.end(), [](const RankSpec& spec) { return spec.argv.empty(); });
}

} // namespace

SubprocessLauncher::SubprocessLauncher(StartMethod start_method,
                                       std::optional<int> nprocs,
                                       LaunchOptions options)
    : Launcher(start_method, nprocs, std::move(options)) {
  if (start_method != StartMethod::spawn)
    throw UsageError(
        fmt::format("SubprocessLauncher with start method {}: programs are executed; use "
                    "StartMethod::spawn, or SpawnLauncher",
                    to_string(start_method)));
}

JobReport SubprocessLauncher::spawn(Task task) {
  if (std::holds_alternative<Command>(task.work))
    return run_job(std::move(task), start_method(), process::Part::program, options());
  if (runs_own_arguments(task) && launched_itself.exchange(true))
    throw UsageError(
        "a second launch of this program by SubprocessLauncher: its ranks would come to "
        "the first one again; use SpawnLauncher for more than one");
  return run_job(std::move(task), start_method(), process::Part::launch, options());
}

} // namespace muster
