#pragma once

#include <muster/launch/options.hpp>

#include <chrono>
#include <functional>
#include <stop_token>
#include <vector>

#include "fd.hpp"
#include "signals.hpp"

namespace muster::process {

/// What reaches a job from outside, over all its attempts: signals and the stop token.
class Interrupts {
public:
  struct News {
    int stops = 0;  // signals that stop the job
    int latest = 0; // the last of them
    bool token = false;
    bool suspend = false;  // Ctrl-Z
    bool children = false; // SIGCHLD
    std::vector<int> forward =
        {}; // in the order of LaunchOptions::forward, each as often as it came
  };

  /// Throws SystemError.
  explicit Interrupts(const LaunchOptions& options);
  Interrupts(const Interrupts&) = delete;
  Interrupts& operator=(const Interrupts&) = delete;
  ~Interrupts() = default;

  /// Readable when there is news.
  int fd() const noexcept { return wake_.get(); }

  /// What came since the last call. The token counts for ever.
  News take();

  /// Waits; true as soon as the job is to stop.
  bool stops_within(std::chrono::milliseconds time);

private:
  void clear_wake();

  const LaunchOptions& options_;
  Fd wake_; // an eventfd
  SignalWatch signals_;
  std::stop_callback<std::function<void()>> on_stop_;
};

} // namespace muster::process
