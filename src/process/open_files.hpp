#pragma once

#include <cstddef>

#include <sys/resource.h>

namespace muster::process {

/// Room for the descriptors of a launch: raises this process's soft limit on open files where it is
/// too low and may be raised, and puts it back.
class OpenFileLimit {
public:
  /// Throws UsageError that says how many are needed, if the hard limit is too low.
  explicit OpenFileLimit(std::size_t ranks);
  OpenFileLimit(const OpenFileLimit&) = delete;
  OpenFileLimit& operator=(const OpenFileLimit&) = delete;
  ~OpenFileLimit();

private:
  rlimit before_{};
  bool raised_ = false;
};

} // namespace muster::process
