#pragma once

#include <string>
#include <utility>
#include <vector>

namespace muster {

/// A set of ranks, as users write it: "0-3,8", "all" or "none".
class RankSet {
public:
  /// No rank.
  RankSet() = default;
  static RankSet all();
  static RankSet only(int rank);

  /// Throws UsageError that quotes `text` and begins with `subject` ("--local-ranks-filter").
  static RankSet parse(const std::string& text, const std::string& subject);

  bool contains(int rank) const noexcept;
  bool empty() const noexcept { return ranges_.empty(); }
  /// The highest rank that is named; -1 for none of them, and for all.
  int highest() const noexcept;

private:
  std::vector<std::pair<int, int>> ranges_; // first and last
};

} // namespace muster
