#pragma once

// What must hold before this process may fork ranks of itself. Each check throws UsageError with
// the reason and the way out.
namespace muster::process {

/// One thread only: a thread's locks stay locked in the child, and a used OpenMP pool hangs there.
void require_one_thread();

/// CUDA was not initialized here: a forked child could not use it.
void require_no_cuda();

} // namespace muster::process
