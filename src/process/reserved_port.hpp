#pragma once

#include "fd.hpp"

namespace muster::process {

/// A port for programs that open a store of their own: the kernel gives it to nobody else while the
/// socket lives, and a store that sets SO_REUSEADDR, as torch's does, can listen on it.
class ReservedPort {
public:
  /// `port` 0: one that the kernel chooses. Throws UsageError if somebody listens on it, naming who
  /// where that can be known; SystemError.
  explicit ReservedPort(int port);

  int port() const noexcept { return port_; }
  int fd() const noexcept { return socket_.get(); }

private:
  Fd socket_;
  int port_ = 0;
};

} // namespace muster::process
