#pragma once

#include <string>

namespace muster {

/// CPUs that this process can really use: its affinity, and the quota of its cgroup and of those
/// above it, rounded down; at least 1. MUSTER_CPUS, where it is set, replaces what was found out;
/// UsageError if it is not a positive number. `root` goes before every path, for tests.
int usable_cpus(const std::string& root = "/");

} // namespace muster
