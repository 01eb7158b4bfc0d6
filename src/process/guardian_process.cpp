#include "guardian_process.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "newborn.hpp"
#include "rank.hpp"

namespace muster::process {

namespace {

/// The ranks to kill. A plain array: no memory is allocated here.
class Watched {
public:
  void add(pid_t pid) noexcept {
    if (pid > 1 && count_ < most)
      pids_[count_++] = pid;
  }
  void remove(pid_t pid) noexcept {
    pid_t* end = pids_ + count_;
    pid_t* found = std::find(pids_, end, pid);
    if (found != end)
      *found = pids_[--count_];
  }
  void kill_all() const noexcept {
    for (int i = 0; i < count_; ++i) {
      ::kill(-pids_[i], SIGKILL);
      ::kill(pids_[i], SIGKILL);
    }
  }

private:
  static constexpr int most = 16384;
  pid_t pids_[most];
  int count_ = 0;
};

Watched watched;
int job_fds[3] = {-1, -1, -1}; // arguments, page, directory

void close_job() noexcept {
  for (int& fd : job_fds)
    if (fd >= 0) {
      ::close(fd);
      fd = -1;
    }
}

/// A copy of this process that is the launcher's child, as this process is.
pid_t clone_sibling() noexcept {
  return static_cast<pid_t>(::syscall(SYS_clone, CLONE_PARENT, nullptr, nullptr, nullptr, nullptr));
}

/// glibc remembers the thread's id in a place that only its own fork updates; the kernel knows it.
void correct_thread_id() noexcept {
  int* place = nullptr;
  if (::prctl(PR_GET_TID_ADDRESS, &place) == 0 && place != nullptr)
    *place = static_cast<int>(::syscall(SYS_gettid));
}

[[noreturn]] void be_rank(const GuardianStart& start, const int* fds) noexcept {
  correct_thread_id();
  ::prctl(PR_SET_NAME, ::program_invocation_short_name);
  leave_launchers_group(start.launcher);
  ::close(start.socket);
  ::close(start.launcher_pidfd);
  for (const int standard : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    ::dup2(fds[2 + standard], standard);
    ::close(fds[2 + standard]);
  }
  if (::fchdir(job_fds[2]) != 0)
    ::_exit(126);
  ::close(job_fds[2]);
  reset_signals();
  run_rank({.control = fds[0], .page = job_fds[1], .arguments = job_fds[0], .result = fds[1]},
           Birth::from_server);
}

void close_all(const int* fds, std::size_t count) noexcept {
  for (std::size_t i = 0; i < count; ++i)
    ::close(fds[i]);
}

void make_rank(const GuardianStart& start, const int* fds, std::size_t count) noexcept {
  const pid_t pid = start.can_fork ? clone_sibling() : -1;
  if (pid == 0)
    be_rank(start, fds);
  if (pid > 0) {
    ::setpgid(pid, pid); // the child does so too; whoever comes first
    watched.add(pid);
  }
  const std::int32_t answer = pid > 0 ? pid : -(start.can_fork ? errno : ENOSYS);
  close_all(fds, count); // before the answer: the launcher tells descendants of ranks by these
  ::send(start.socket, &answer, sizeof answer, MSG_NOSIGNAL);
}

/// Receives a command. False at end-of-file.
bool receive(int socket, GuardianCommand& command, int* fds, std::size_t& count) noexcept {
  iovec part{&command, sizeof command};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * GuardianCommand::most_fds)];
  msghdr head{};
  head.msg_iov = &part;
  head.msg_iovlen = 1;
  head.msg_control = control;
  head.msg_controllen = sizeof control;
  const ssize_t size = ::recvmsg(socket, &head, MSG_CMSG_CLOEXEC);
  if (size == 0 || (size < 0 && errno != EINTR))
    return false;
  count = 0;
  if (size != sizeof command) {
    command.kind = -1;
    return true;
  }
  if (const cmsghdr* rights = CMSG_FIRSTHDR(&head)) {
    count = (rights->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    std::memcpy(fds, CMSG_DATA(rights), count * sizeof(int));
  }
  return true;
}

void obey(const GuardianStart& start, const GuardianCommand& command, int* fds, std::size_t count) {
  switch (command.kind) {
  case GuardianCommand::begin_job:
    close_job();
    std::copy(fds, fds + std::min(count, std::size(job_fds)), job_fds);
    return;
  case GuardianCommand::make_rank:
    return make_rank(start, fds, count);
  case GuardianCommand::end_job:
    close_job();
    break;
  case GuardianCommand::watch:
    watched.add(command.pid);
    break;
  case GuardianCommand::unwatch:
    watched.remove(command.pid);
    break;
  default:
    break;
  }
  close_all(fds, count);
}

/// Descriptors that a program started from here would have inherited: the guardian holds none of
/// them open. What libraries opened for themselves (close-on-exec) stays for the ranks.
void close_inherited(const GuardianStart& start) noexcept {
  DIR* list = ::opendir("/proc/self/fd");
  if (list == nullptr)
    return;
  while (const dirent* entry = ::readdir(list)) {
    int fd = 0;
    for (const char* c = entry->d_name; *c >= '0' && *c <= '9'; ++c)
      fd = fd * 10 + (*c - '0');
    if (fd > 2 && fd != ::dirfd(list) && fd != start.socket && fd != start.launcher_pidfd &&
        (::fcntl(fd, F_GETFD) & FD_CLOEXEC) == 0)
      ::close(fd);
  }
  ::closedir(list);
}

void close_all_but(int a, int b) noexcept {
  const auto low = static_cast<unsigned>(std::min(a, b));
  const auto high = static_cast<unsigned>(std::max(a, b));
  const auto close = [](unsigned from, unsigned to) {
    if (from <= to)
      ::syscall(SYS_close_range, from, to, 0);
  };
  close(3, low - 1);
  close(low + 1, high - 1);
  close(high + 1, ~0U);
}

void settle_in(const GuardianStart& start) noexcept {
  ::close(start.launchers_end);
  ::setpgid(0, 0); // Ctrl-C on the terminal is for the launcher
  ::prctl(PR_SET_NAME, "muster-guardian");
  const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    ::dup2(null, fd);
  if (null > 2)
    ::close(null);
  if (start.can_fork)
    close_inherited(start);
  else
    close_all_but(start.socket, start.launcher_pidfd);
}

} // namespace

void be_guardian(GuardianStart start) noexcept {
  settle_in(start);
  for (;;) {
    pollfd ready[2] = {{start.socket, POLLIN, 0}, {start.launcher_pidfd, POLLIN, 0}};
    if (::poll(ready, 2, -1) < 0)
      continue;
    if (ready[0].revents == 0)
      break; // the launcher has died; all that was said before is known
    GuardianCommand command{};
    int fds[GuardianCommand::most_fds];
    std::size_t count = 0;
    if (!receive(start.socket, command, fds, count) || command.kind == GuardianCommand::leave)
      break; // it let go of this guardian
    start.can_fork = start.can_fork && ready[1].revents == 0;
    obey(start, command, fds, count);
  }
  watched.kill_all();
  ::_exit(0);
}

} // namespace muster::process
