#include "hang_watch.hpp"

#include <algorithm>
#include <utility>

namespace muster::process {

HangWatch::HangWatch(const StatusPage& page, std::optional<std::chrono::milliseconds> limit)
    : page_(page) {
  if (limit) {
    limit_ = *limit;
    next_ = Clock::now() + limit_;
  }
}

void HangWatch::resume() { since_ = monotonic_ns(); }

bool HangWatch::is_blind(const std::vector<std::size_t>& ranks) const {
  return std::none_of(
      ranks.begin(), ranks.end(), [this](std::size_t i) { return page_.slot(i)->linked.load(); });
}

std::optional<HangWatch::Verdict> HangWatch::check(const std::vector<std::size_t>& ranks,
                                                   Clock::time_point now) {
  std::int64_t latest = since_;
  for (const std::size_t i : ranks)
    latest = std::max(latest, page_.slot(i)->last_progress.load());
  const auto idle = std::chrono::nanoseconds(monotonic_ns() - latest);
  if (idle < limit_) {
    next_ = now + std::chrono::ceil<std::chrono::milliseconds>(limit_ - idle);
    return std::nullopt;
  }
  const auto place = [this](std::size_t i) {
    const RankSlot& slot = *page_.slot(i);
    return std::pair(slot.collectives.load(), slot.in_flight_since.load() != 0);
  };
  const auto least =
      place(*std::min_element(ranks.begin(), ranks.end(), [&](std::size_t a, std::size_t b) {
        return place(a) < place(b);
      }));
  Verdict verdict;
  for (const std::size_t i : ranks)
    (place(i) == least ? verdict.behind : verdict.waiting).push_back(i);
  return verdict;
}

} // namespace muster::process
