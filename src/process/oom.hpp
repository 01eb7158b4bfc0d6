#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cgroup.hpp"

namespace muster::process {

/// Tells whether the kernel's OOM killer was at work in this process's cgroup or one above it.
class OomWatch {
public:
  /// Notes the counters as they are. `root` goes before every path, for tests.
  explicit OomWatch(const std::string& root = "/");

  /// True if a counter has risen since construction, or since the last call that returned true.
  bool killed_since() const;

  /// The smallest limit above this process, "memory limit 512 MiB of cgroup FOLDER"; empty if there
  /// is none.
  std::string limit() const;

private:
  struct Counter {
    std::string file;
    std::uint64_t seen = 0;
  };

  std::string root_;
  std::vector<CgroupHierarchy> groups_;
  mutable std::vector<Counter> counters_;
};

} // namespace muster::process
