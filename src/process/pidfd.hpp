#pragma once

#include <muster/launch/exit_status.hpp>

#include <cerrno>

#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

// Thin calls around pidfds; glibc 2.36's <sys/pidfd.h> cannot be used from C++.
namespace muster::process {

inline int pidfd_open(pid_t pid) noexcept {
  return static_cast<int>(::syscall(SYS_pidfd_open, pid, 0));
}

inline int pidfd_signal(int pidfd, int signal) noexcept {
  return static_cast<int>(::syscall(SYS_pidfd_send_signal, pidfd, signal, nullptr, 0));
}

/// Waits for a child by its pidfd, also for one whose exit signal is not SIGCHLD. Returns false
/// with errno ECHILD if somebody else has reaped it.
inline bool wait_pidfd(int pidfd, siginfo_t& info, int options) noexcept {
  info = {};
  int result = -1;
  do
    result = ::waitid(static_cast<idtype_t>(P_PIDFD),
                      static_cast<id_t>(pidfd),
                      &info,
                      WEXITED | __WALL | options);
  while (result != 0 && errno == EINTR);
  return result == 0;
}

inline void wait_for_end(int pidfd) noexcept {
  siginfo_t info;
  wait_pidfd(pidfd, info, 0);
}

/// True if the process has ended, or does within `time_ms`. Signals do not shorten that.
inline bool ends_within(int pidfd, int time_ms) noexcept {
  pollfd ended{pidfd, POLLIN, 0};
  int count = -1;
  do
    count = ::poll(&ended, 1, time_ms);
  while (count < 0 && errno == EINTR);
  return count > 0;
}

inline ExitStatus exit_status(const siginfo_t& info) noexcept {
  return info.si_code == CLD_EXITED
             ? ExitStatus::exited(info.si_status)
             : ExitStatus::signaled(info.si_status, info.si_code == CLD_DUMPED);
}

/// Blocks every signal of this thread while it lives.
class SignalsBlocked {
public:
  SignalsBlocked() noexcept {
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;
  ~SignalsBlocked() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

private:
  sigset_t before_;
};

} // namespace muster::process
