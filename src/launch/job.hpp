#pragma once

#include <muster/launch/options.hpp>
#include <muster/launch/report.hpp>
#include <muster/launch/task.hpp>

#include "../process/protocol.hpp"

namespace muster {

/// Runs a task's ranks on this host to the end of the job, over all its attempts. Throws only when
/// nothing is left running: UsageError, SpawnFailure.
JobReport run_job(Task task, StartMethod method, process::Part part, const LaunchOptions& options);

} // namespace muster
