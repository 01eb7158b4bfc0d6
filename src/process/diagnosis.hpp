#pragma once

#include <muster/launch/report.hpp>

#include <cstddef>

#include "launch/error_file.hpp"
#include "oom.hpp"

namespace muster::process {

/// Why a rank may have failed, beyond what its exit status says: its error file, the OOM killer's
/// counters, and what it wrote last.
class Diagnosis {
public:
  explicit Diagnosis(const ErrorFiles* errors) : errors_(errors) {}

  /// Adds to `rank` (number `i` on this host) what is found.
  void explain(RankReport& rank, std::size_t i, bool killed_by_us);

private:
  const ErrorFiles* errors_; // none: the ranks were given none
  OomWatch oom_;
};

} // namespace muster::process
