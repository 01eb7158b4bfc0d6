// Bounds without muster: what the kernel needs to make and end ranks that do nothing.
#include <algorithm>
#include <string>
#include <vector>

#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include "serve.hpp"

namespace {

void fork_in_a_row(int ranks) {
  std::vector<pid_t> children;
  for (int i = 0; i < ranks; ++i) {
    const pid_t pid = ::fork();
    if (pid == 0)
      ::_exit(0);
    children.push_back(pid);
  }
  bench::wait_for(children);
}

/// This program again, libtorch and all.
void spawn_in_a_row(char* program, int ranks) {
  std::vector<pid_t> children;
  char mode[] = "nothing";
  char* argv[] = {program, mode, nullptr};
  for (int i = 0; i < ranks; ++i) {
    pid_t pid = 0;
    if (::posix_spawn(&pid, program, nullptr, nullptr, argv, environ) != 0)
      std::_Exit(1);
    children.push_back(pid);
  }
  bench::wait_for(children);
}

/// Ranks that sleep; when one ends, the others are killed.
int watch(int ranks) {
  std::vector<pollfd> pidfds;
  std::vector<pid_t> pids;
  for (int i = 0; i < ranks; ++i) {
    const pid_t pid = ::fork();
    if (pid == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      ::sleep(60);
      ::_exit(0);
    }
    std::cout << pid << std::endl;
    pids.push_back(pid);
    pidfds.push_back({static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)), POLLIN, 0});
  }
  ::poll(pidfds.data(), pidfds.size(), -1);
  for (const pid_t pid : pids)
    ::kill(pid, SIGKILL);
  for (const pid_t pid : pids)
    ::waitpid(pid, nullptr, 0);
  std::cout << bench::now_ns() << std::endl;
  return 0;
}

} // namespace

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "";
  const int ranks = argc > 2 ? std::atoi(argv[2]) : 2;
  if (mode == "nothing")
    ::_exit(0);
  if (mode == "fork")
    return bench::serve_times([&] { fork_in_a_row(ranks); });
  if (mode == "spawn")
    return bench::serve_times([&] { spawn_in_a_row(argv[0], ranks); });
  if (mode == "watch")
    return watch(ranks);
  std::cerr << "usage: bare_fork fork|spawn|watch RANKS\n";
  return 2;
}
