#include "newborn.hpp"

#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

namespace muster::process {

void leave_launchers_group(pid_t launcher) noexcept {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != launcher)
    ::_exit(128 + SIGKILL);
}

void reset_signals() noexcept {
  struct sigaction standard {};
  standard.sa_handler = SIG_DFL;
  for (int signal = 1; signal < NSIG; ++signal) {
    struct sigaction now {};
    if (::sigaction(signal, nullptr, &now) != 0 || now.sa_handler == SIG_DFL)
      continue;
    if (signal == SIGHUP && now.sa_handler == SIG_IGN)
      continue;
    ::sigaction(signal, &standard, nullptr);
  }
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
}

} // namespace muster::process
