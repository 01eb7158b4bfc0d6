#pragma once

#include <string>
#include <vector>

namespace muster::process {

/// A mounted cgroup hierarchy, from this process's group upwards.
struct CgroupHierarchy {
  int version = 2;
  /// The folder of this process's group, and of every group above it that can be seen. Not all need
  /// exist.
  std::vector<std::string> folders;
};

/// The hierarchies that may limit `controller` ("cpu", "memory"): that of cgroup v1 which has it,
/// v2's, or both on a hybrid host. Empty where none is mounted. `root` goes before every path, for
/// tests.
std::vector<CgroupHierarchy> cgroups_of(const std::string& controller,
                                        const std::string& root = "/");

/// `path`, which is absolute, below `root`.
std::string below(const std::string& root, const std::string& path);

} // namespace muster::process
