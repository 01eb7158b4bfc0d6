#include "signals.hpp"

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <mutex>

#include <signal.h>
#include <unistd.h>

namespace muster::process {

namespace {

constexpr int watched[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
constexpr int most_watches = 64;

// What a signal handler may touch: lock-free atomics, of the whole process as dispositions are.
std::atomic<int> wakes[most_watches]; // eventfd + 1; 0: free
std::atomic<long> total = 0;
std::atomic<int> last = 0;

// Guarded by the mutex.
std::mutex mutex;
int watches = 0;  // that live
int handling = 0; // of these, with signal handling
struct sigaction before[NSIG];
bool installed[NSIG];

void on_signal(int signal) {
  const int saved = errno;
  last = signal;
  ++total;
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

SignalWatch::SignalWatch(bool enabled, int wake) : enabled_(enabled) {
  const std::lock_guard lock(mutex);
  seen_ = total;
  if (++watches == 1)
    install(SIGCHLD, SIG_IGN, SIG_DFL);
  if (!enabled)
    return;
  ++handling;
  for (int i = 0; i < most_watches && slot_ < 0; ++i)
    if (wakes[i] == 0) {
      wakes[i] = wake + 1;
      slot_ = i;
    }
  for (const int signal : watched)
    if (!installed[signal])
      install(signal, SIG_DFL, on_signal);
}

SignalWatch::~SignalWatch() {
  const std::lock_guard lock(mutex);
  if (slot_ >= 0)
    wakes[slot_] = 0;
  if (--watches == 0)
    restore(SIGCHLD);
  if (enabled_ && --handling == 0)
    for (const int signal : watched)
      restore(signal);
}

int SignalWatch::take(int& latest) noexcept {
  if (!enabled_)
    return 0;
  const long now = total;
  const auto count = static_cast<int>(now - seen_);
  seen_ = now;
  if (count > 0)
    latest = last;
  return count;
}

} // namespace muster::process
