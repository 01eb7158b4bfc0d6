#include "interrupts.hpp"

#include <algorithm>
#include <cstdint>

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "sys.hpp"

namespace muster::process {

namespace {

std::vector<int> all_signals(const LaunchOptions& options) {
  std::vector<int> all = options.stop_signals;
  all.insert(all.end(), options.forward.begin(), options.forward.end());
  if (options.owns_process)
    all.insert(all.end(), {SIGCHLD, SIGTSTP});
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  return all;
}

} // namespace

Interrupts::Interrupts(const LaunchOptions& options)
    : options_(options),
      wake_(sys::checked("eventfd", [] { return ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK); })),
      signals_(all_signals(options), wake_.get()),
      on_stop_(options.stop, [fd = wake_.get()] {
        const std::uint64_t one = 1;
        [[maybe_unused]] const ssize_t done = ::write(fd, &one, sizeof one);
      }) {}

void Interrupts::clear_wake() {
  std::uint64_t count = 0;
  [[maybe_unused]] const ssize_t done = ::read(wake_.get(), &count, sizeof count);
}

Interrupts::News Interrupts::take() {
  clear_wake();
  News news;
  news.token = options_.stop.stop_requested();
  for (const int signal : options_.forward)
    news.forward.insert(
        news.forward.end(), static_cast<std::size_t>(signals_.take(signal)), signal);
  for (const int signal : options_.stop_signals)
    if (const int times = signals_.take(signal)) {
      news.stops += times;
      news.latest = signal;
    }
  if (options_.owns_process) {
    news.suspend = signals_.take(SIGTSTP) > 0;
    news.children = signals_.take(SIGCHLD) > 0;
  }
  return news;
}

bool Interrupts::stops_within(std::chrono::milliseconds time) {
  using Clock = std::chrono::steady_clock;
  const auto limit = Clock::now() + time;
  for (;;) {
    clear_wake();
    const auto& stops = options_.stop_signals;
    if (options_.stop.stop_requested() ||
        std::any_of(stops.begin(), stops.end(), [this](int signal) {
          return signals_.pending(signal) > 0;
        }))
      return true;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(limit - Clock::now());
    if (left.count() <= 0)
      return false;
    pollfd ready{wake_.get(), POLLIN, 0};
    ::poll(&ready, 1, static_cast<int>(left.count()));
  }
}

} // namespace muster::process
