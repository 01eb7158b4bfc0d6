#pragma once

#include <muster/launch/options.hpp>
#include <muster/launch/task.hpp>

#include "../process/protocol.hpp"

namespace muster {

/// Everything about a task that can be wrong before a rank is started. Throws UsageError.
void check_task(const Task& task,
                StartMethod method,
                process::Part part,
                const LaunchOptions& options);

} // namespace muster
