#include "guardian.hpp"

#include <muster/launch/error.hpp>

#include <cerrno>
#include <cstring>

#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "guardian_process.hpp"
#include "pidfd.hpp"
#include "sys.hpp"

namespace muster::process {

namespace {

constexpr int answers_within_ms = 10'000;
constexpr int leaves_within_ms = 2'000;

/// Sends a command with descriptors. False if the guardian is gone.
bool send_command(int socket, GuardianCommand command, const int* fds, std::size_t count) {
  iovec part{&command, sizeof command};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * GuardianCommand::most_fds)] = {};
  msghdr head{};
  head.msg_iov = &part;
  head.msg_iovlen = 1;
  if (count > 0) {
    head.msg_control = control;
    head.msg_controllen = CMSG_SPACE(sizeof(int) * count);
    cmsghdr* rights = CMSG_FIRSTHDR(&head);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof(int) * count);
    std::memcpy(CMSG_DATA(rights), fds, sizeof(int) * count);
  }
  ssize_t sent = -1;
  do
    sent = sys::call([&] { return ::sendmsg(socket, &head, MSG_NOSIGNAL); });
  while (sent < 0 && errno == EINTR);
  return sent >= 0;
}

/// The pid of a new rank, or -1 with errno set.
pid_t receive_pid(int socket) {
  pollfd readable{socket, POLLIN, 0};
  int count = -1;
  do
    count = ::poll(&readable, 1, answers_within_ms);
  while (count < 0 && errno == EINTR);
  if (count == 0)
    errno = ETIMEDOUT;
  if (count <= 0)
    return -1;
  std::int32_t answer = 0;
  const ssize_t size = ::recv(socket, &answer, sizeof answer, 0);
  if (size != sizeof answer) {
    errno = ECONNRESET;
    return -1;
  }
  if (answer < 0)
    errno = -answer;
  return answer < 0 ? -1 : answer;
}

} // namespace

Guardian::Guardian(bool can_fork) : can_fork_(can_fork) {
  int ends[2];
  sys::checked("socketpair",
               [&] { return ::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends); });
  socket_ = Fd(ends[0]);
  const Fd theirs(ends[1]);
  const pid_t launcher = ::getpid();
  const Fd self(sys::checked("pidfd_open", [&] { return pidfd_open(launcher); }));
  const SignalsBlocked blocked;
  int pidfd = -1;
  const long pid = sys::checked("making the guardian process", [&] {
    return ::syscall(SYS_clone, CLONE_PIDFD, nullptr, &pidfd, nullptr, nullptr);
  });
  if (pid == 0)
    be_guardian({theirs.get(), socket_.get(), self.get(), launcher, can_fork});
  pidfd_ = Fd(pidfd);
}

Guardian::~Guardian() {
  if (!pidfd_)
    return;
  // Told so, and not by end-of-file: a child that the host forked may hold the socket, too.
  send_command(socket_.get(), {GuardianCommand::leave, 0}, nullptr, 0);
  socket_.reset();
  if (!ends_within(pidfd_.get(), leaves_within_ms))
    pidfd_signal(pidfd_.get(), SIGKILL); // somebody has stopped it
  wait_for_end(pidfd_.get());
}

void Guardian::abandon() noexcept {
  socket_.reset();
  pidfd_.reset();
}

bool Guardian::alive() const noexcept { return pidfd_ && !ends_within(pidfd_.get(), 0); }

std::vector<pid_t>
Guardian::fork_ranks(const Job& job, const std::vector<Rank>& ranks, int& error) {
  const std::lock_guard lock(mutex_);
  std::vector<pid_t> pids;
  const int job_fds[] = {job.arguments, job.page, job.directory};
  bool good = send_command(socket_.get(), {GuardianCommand::begin_job, 0}, job_fds, 3);
  std::size_t asked = 0;
  for (; good && asked < ranks.size(); ++asked) {
    const Rank& rank = ranks[asked];
    const int fds[] = {rank.control, rank.result, rank.input, rank.output, rank.error};
    good = send_command(socket_.get(), {GuardianCommand::make_rank, 0}, fds, 5);
  }
  error = good ? 0 : errno;
  asked -= good ? 0U : static_cast<std::size_t>(asked > 0);
  for (; asked > 0; --asked) {
    const pid_t pid = receive_pid(socket_.get());
    if (pid < 0 && error == 0)
      error = errno;
    if (pid < 0 && (errno == ETIMEDOUT || errno == ECONNRESET))
      break;
    if (pid >= 0)
      pids.push_back(pid);
  }
  send_command(socket_.get(), {GuardianCommand::end_job, 0}, nullptr, 0);
  return pids;
}

void Guardian::tell(int socket, pid_t pid, bool watch) noexcept {
  const GuardianCommand command{watch ? GuardianCommand::watch : GuardianCommand::unwatch, pid};
  while (::send(socket, &command, sizeof command, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 &&
         errno == EINTR)
    ;
}

} // namespace muster::process
