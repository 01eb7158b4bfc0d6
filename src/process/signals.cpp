#include "signals.hpp"

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <mutex>

#include <unistd.h>

namespace muster::process {

namespace {

constexpr int most_watches = 64;

// What a signal handler may touch: lock-free atomics, of the whole process as dispositions are.
std::atomic<int> wakes[most_watches]; // eventfd + 1; 0: free
std::atomic<long> totals[NSIG];

// Guarded by the mutex.
std::mutex mutex;
int watches = 0;    // that live
int handling[NSIG]; // of these, by signal
struct sigaction before[NSIG];
bool installed[NSIG];

void on_signal(int signal) {
  const int saved = errno;
  ++totals[signal];
  const std::uint64_t one = 1;
  for (const auto& wake : wakes)
    if (const int fd = wake.load()) [[maybe_unused]]
      const ssize_t done = ::write(fd - 1, &one, sizeof one);
  errno = saved;
}

void install(int signal, void (*from)(int), void (*to)(int)) {
  ::sigaction(signal, nullptr, &before[signal]);
  if (before[signal].sa_handler != from)
    return;
  struct sigaction action {};
  action.sa_handler = to;
  action.sa_flags = SA_RESTART;
  ::sigfillset(&action.sa_mask);
  installed[signal] = ::sigaction(signal, &action, nullptr) == 0;
}

void restore(int signal) {
  if (installed[signal])
    ::sigaction(signal, &before[signal], nullptr);
  installed[signal] = false;
}

} // namespace

SignalWatch::SignalWatch(const std::vector<int>& signals, int wake) : signals_(signals) {
  const std::lock_guard lock(mutex);
  for (const int signal : signals_)
    seen_[static_cast<std::size_t>(signal)] = totals[signal];
  for (int i = 0; i < most_watches && slot_ < 0; ++i)
    if (wakes[i] == 0) {
      wakes[i] = wake + 1;
      slot_ = i;
    }
  for (const int signal : signals_)
    if (++handling[signal] == 1)
      install(signal, SIG_DFL, on_signal);
  if (++watches == 1 && handling[SIGCHLD] == 0)
    install(SIGCHLD, SIG_IGN, SIG_DFL);
}

SignalWatch::~SignalWatch() {
  const std::lock_guard lock(mutex);
  if (slot_ >= 0)
    wakes[slot_] = 0;
  for (const int signal : signals_)
    if (--handling[signal] == 0)
      restore(signal);
  if (--watches == 0)
    restore(SIGCHLD);
}

int SignalWatch::pending(int signal) const noexcept {
  return static_cast<int>(totals[signal] - seen_[static_cast<std::size_t>(signal)]);
}

int SignalWatch::take(int signal) noexcept {
  const int count = pending(signal);
  seen_[static_cast<std::size_t>(signal)] += count;
  return count;
}

} // namespace muster::process
