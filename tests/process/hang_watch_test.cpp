#include "process/hang_watch.hpp"

#include "catch.hpp"

using muster::process::HangWatch;
using muster::process::monotonic_ns;
using muster::process::StatusPage;
using namespace std::chrono_literals;
using Ranks = std::vector<std::size_t>;

namespace {

/// A page of ranks that link muster and did something `ago`.
StatusPage page_of(std::size_t ranks, std::chrono::nanoseconds ago) {
  StatusPage page = StatusPage::create(ranks);
  for (std::size_t i = 0; i < ranks; ++i) {
    page.slot(i)->linked = true;
    page.slot(i)->last_progress = monotonic_ns() - ago.count();
  }
  return page;
}

} // namespace

TEST_CASE("one rank's progress is the job's", "[hang_watch]") {
  const StatusPage page = page_of(3, 1h);
  HangWatch watch(page, 1min);
  page.slot(2)->last_progress = monotonic_ns();
  const auto now = HangWatch::Clock::now();
  CHECK_FALSE(watch.check({0, 1, 2}, now));
  CHECK(*watch.deadline() > now + 50s);
  CHECK_FALSE(HangWatch(page, std::nullopt).deadline());
}

TEST_CASE("the rank that is in fewer collectives is behind, and the others wait", "[hang_watch]") {
  const StatusPage page = page_of(3, 1h);
  HangWatch watch(page, 0ms);
  for (const std::size_t i : Ranks{0, 1, 2})
    page.slot(i)->collectives = 7;
  page.slot(1)->in_flight_since = 0;
  page.slot(0)->in_flight_since = page.slot(2)->in_flight_since = 1;
  const auto verdict = watch.check({0, 1, 2}, HangWatch::Clock::now());
  REQUIRE(verdict);
  CHECK(verdict->behind == Ranks{1});
  CHECK(verdict->waiting == Ranks{0, 2});
  page.slot(1)->collectives = 8; // now it is ahead
  CHECK(watch.check({0, 1, 2}, HangWatch::Clock::now())->behind == Ranks{0, 2});
}

TEST_CASE("time in which the job was stopped does not count", "[hang_watch]") {
  const StatusPage page = page_of(1, 1h);
  HangWatch watch(page, 1min);
  watch.resume();
  CHECK_FALSE(watch.check({0}, HangWatch::Clock::now()));
}

TEST_CASE("of programs that do not link muster nothing is known", "[hang_watch]") {
  const StatusPage page = page_of(2, 1h);
  const HangWatch watch(page, 0ms);
  CHECK_FALSE(watch.is_blind({0, 1}));
  page.slot(0)->linked = false;
  CHECK_FALSE(watch.is_blind({0, 1}));
  CHECK(watch.is_blind({0}));
}
