#include "quiet_write.hpp"

#include <cerrno>
#include <ctime>

#include <signal.h>
#include <unistd.h>

#include "sys.hpp"

namespace muster::process {

namespace {

constexpr int raised_by_write[] = {SIGPIPE, SIGXFSZ};

/// Takes what the write raised, but not what was pending before: that is somebody else's.
void consume(sigset_t raised, const sigset_t& pending_before) noexcept {
  for (const int signal : raised_by_write)
    if (::sigismember(&pending_before, signal) == 1)
      ::sigdelset(&raised, signal);
  const timespec at_once{};
  ::sigtimedwait(&raised, nullptr, &at_once);
}

} // namespace

ssize_t write_quietly(int fd, std::string_view bytes) noexcept {
  sigset_t raised;
  ::sigemptyset(&raised);
  for (const int signal : raised_by_write)
    ::sigaddset(&raised, signal);
  sigset_t mask_before;
  sigset_t pending_before;
  ::pthread_sigmask(SIG_BLOCK, &raised, &mask_before);
  ::sigpending(&pending_before);
  ssize_t written = -1;
  do
    written = sys::call([&] { return ::write(fd, bytes.data(), bytes.size()); });
  while (written < 0 && errno == EINTR);
  const int error = errno;
  // A pipe whose reader goes in the middle of a write raises SIGPIPE and takes a part nevertheless.
  if (written != static_cast<ssize_t>(bytes.size()))
    consume(raised, pending_before);
  ::pthread_sigmask(SIG_SETMASK, &mask_before, nullptr);
  errno = error;
  return written;
}

} // namespace muster::process
