#include <muster/launch/error.hpp>
#include <muster/launch/rank_set.hpp>

#include <algorithm>
#include <charconv>
#include <limits>

#include <fmt/format.h>

namespace muster {

namespace {

constexpr int no_end = std::numeric_limits<int>::max();

/// The number that begins at `at`, which is moved behind it; -1 if there is none.
int read_number(const char*& at, const char* end) {
  int number = -1;
  const auto [next, error] = std::from_chars(at, end, number);
  if (error != std::errc() || *at == '-')
    return -1;
  at = next;
  return number;
}

} // namespace

RankSet RankSet::all() {
  RankSet set;
  set.ranges_ = {{0, no_end}};
  return set;
}

RankSet RankSet::only(int rank) {
  RankSet set;
  set.ranges_ = {{rank, rank}};
  return set;
}

RankSet RankSet::parse(const std::string& text, const std::string& subject) {
  if (text == "all")
    return all();
  RankSet set;
  if (text == "none" || text.empty())
    return set;
  const char* at = text.data();
  const char* const end = at + text.size();
  for (bool more = true; more;) {
    const int first = read_number(at, end);
    int last = first;
    if (at < end && *at == '-')
      last = read_number(++at, end);
    more = at < end && *at == ',';
    if (first < 0 || last < first || (at < end && !more))
      throw UsageError(
          fmt::format("{} '{}': ranks are written as 0-3,8, or as all or none", subject, text));
    at += more ? 1 : 0;
    set.ranges_.emplace_back(first, last);
  }
  return set;
}

bool RankSet::contains(int rank) const noexcept {
  return std::any_of(ranges_.begin(), ranges_.end(), [rank](const auto& range) {
    return range.first <= rank && rank <= range.second;
  });
}

int RankSet::highest() const noexcept {
  int found = -1;
  for (const auto& [first, last] : ranges_)
    found = std::max(found, last == no_end ? -1 : last);
  return found;
}

} // namespace muster
