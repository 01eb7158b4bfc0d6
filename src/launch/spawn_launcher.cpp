#include <muster/launch/spawn_launcher.hpp>

#include "job.hpp"

namespace muster {

JobReport SpawnLauncher::spawn(Task task) {
  if (std::holds_alternative<Command>(task.work))
    throw UsageError("SpawnLauncher runs functions: use SubprocessLauncher for a program");
  return run_job(std::move(task), start_method(), process::Part::function, options());
}

} // namespace muster
