#pragma once

#include <array>
#include <vector>

#include <signal.h>

namespace muster::process {

/// While one of these lives, chosen signals are counted instead of ending this process, where their
/// disposition is the default one; and SIGCHLD is not ignored, which would lose exit statuses. The
/// last one to go puts back what was there. Counted, so launches may overlap.
class SignalWatch {
public:
  /// `wake` is an eventfd that each signal writes to.
  SignalWatch(const std::vector<int>& signals, int wake);
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;
  ~SignalWatch();

  /// How often `signal` came since the last take() of it.
  int pending(int signal) const noexcept;
  int take(int signal) noexcept;

private:
  std::vector<int> signals_;
  int slot_ = -1;
  std::array<long, NSIG> seen_ = {};
};

} // namespace muster::process
