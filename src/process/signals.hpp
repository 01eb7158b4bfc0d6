#pragma once

namespace muster::process {

/// While one of these lives, INT, TERM, HUP and QUIT are counted instead of ending this process,
/// where their disposition is the default one; and SIGCHLD is not ignored, which would lose exit
/// statuses. The last one to go puts back what was there. Counted, so launches may overlap.
class SignalWatch {
public:
  /// `wake` is an eventfd that each signal writes to.
  SignalWatch(bool enabled, int wake);
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;
  ~SignalWatch();

  /// Signals that came since the last call; `latest` is set if there was one.
  int take(int& latest) noexcept;

private:
  bool enabled_;
  int slot_ = -1;
  long seen_ = 0;
};

} // namespace muster::process
