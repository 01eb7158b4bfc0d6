#pragma once

#include <muster/launch/report.hpp>

#include <cstddef>

#include "launch/error_file.hpp"
#include "launch/hint.hpp"
#include "oom.hpp"

namespace muster::process {

/// Why a rank may have failed, beyond what its exit status says: its error file, the OOM killer's
/// counters, and what it wrote last.
class Diagnosis {
public:
  /// `errors` may be null: the ranks were given none.
  explicit Diagnosis(const ErrorFiles* errors);

  /// Adds to `rank` (number `i` on this host) what is found.
  void explain(RankReport& rank, std::size_t i, bool killed_by_us);

private:
  const ErrorFiles* errors_;
  HintFacts facts_;
  OomWatch oom_;
};

} // namespace muster::process
