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

Interrupts::News Interrupts::take() {
  std::uint64_t count = 0;
  [[maybe_unused]] const ssize_t done = ::read(wake_.get(), &count, sizeof count);
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

bool Interrupts::wait(std::chrono::milliseconds time) const {
  pollfd ready{wake_.get(), POLLIN, 0};
  return ::poll(&ready, 1, static_cast<int>(time.count())) > 0;
}

} // namespace muster::process
