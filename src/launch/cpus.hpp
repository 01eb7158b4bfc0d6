#pragma once

namespace muster {

/// CPUs that this process can really use: its affinity, and the quota of its cgroup and of those
/// above it, rounded down; at least 1.
int usable_cpus();

} // namespace muster
