#pragma once

#include "run_options.hpp"

namespace muster::cli {

/// Runs the job and returns the process's exit code. Throws UsageError, ProgramError or
/// SpawnFailure when nothing was started.
int run(const RunOptions& options);

} // namespace muster::cli
