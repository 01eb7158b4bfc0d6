#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

#include "status_page.hpp"

namespace muster::process {

/// Tells from the status page when ranks have stopped to make progress: steps, collectives, phases
/// and muster::progress.
class HangWatch {
public:
  using Clock = std::chrono::steady_clock;

  /// Of ranks that hang: those that have begun the fewest collectives, or are in none while others
  /// wait, and the others. Indices of slots.
  struct Verdict {
    std::vector<std::size_t> behind;
    std::vector<std::size_t> waiting;
  };

  /// `page` must outlive this object; without a limit nothing ever hangs.
  HangWatch(const StatusPage& page, std::optional<std::chrono::milliseconds> limit);

  /// The whole job was stopped until now: that counts for nobody.
  void resume();
  void stop() noexcept { next_.reset(); }
  /// When check() is to be called; nullopt: never.
  std::optional<Clock::time_point> deadline() const noexcept { return next_; }

  /// True if none of `ranks` says what it does, so that it cannot be known; nothing hangs then.
  bool is_blind(const std::vector<std::size_t>& ranks) const;
  /// A verdict on `ranks`, those that live, if none of them has made progress for the limit.
  std::optional<Verdict> check(const std::vector<std::size_t>& ranks, Clock::time_point now);

private:
  const StatusPage& page_;
  std::chrono::milliseconds limit_{};
  std::int64_t since_ = monotonic_ns(); // nothing before counts
  std::optional<Clock::time_point> next_;
};

} // namespace muster::process
