#include "sweep.hpp"

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <iterator>
#include <mutex>
#include <sstream>
#include <vector>

#include <dirent.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fmt/format.h>

#include "fd.hpp"
#include "pidfd.hpp"
#include "program.hpp"
#include "rank.hpp"

namespace muster::process {

namespace {

constexpr int most_rounds = 100; // each kills a generation of orphans
constexpr int dies_within_ms = 5000;

std::mutex mutex; // guards what follows, a flag of the whole process
int subreapers = 0;
int flag_before = 0;

/// What can be read of a file under /proc: nothing if its process has gone, which may be between
/// open and read. (A stream buffer throws then; its insertion into a stream does not.)
std::string contents(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

/// Orphans go to the main thread of their new parent.
std::vector<pid_t> children_of_main_thread() {
  std::ifstream list(fmt::format("/proc/self/task/{}/children", ::getpid()));
  return {std::istream_iterator<pid_t>(list), {}};
}

template <class T>
bool contains(const std::vector<T>& all, T one) {
  return std::find(all.begin(), all.end(), one) != all.end();
}

bool has_open(pid_t pid, const std::vector<ino_t>& sockets) {
  const std::string folder = fmt::format("/proc/{}/fd", pid);
  DIR* list = ::opendir(folder.c_str());
  if (list == nullptr)
    return false;
  bool found = false;
  while (const dirent* entry = ::readdir(list)) {
    struct stat info {};
    if (!found && ::fstatat(::dirfd(list), entry->d_name, &info, 0) == 0)
      found = S_ISSOCK(info.st_mode) && contains(sockets, info.st_ino);
  }
  ::closedir(list);
  return found;
}

/// The state letter and the process group in /proc/PID/stat.
struct Stat {
  char state = '?';
  pid_t group = 0;
};

Stat stat_of(pid_t pid) {
  const std::string text = contents(fmt::format("/proc/{}/stat", pid));
  Stat stat;
  pid_t parent = 0;
  if (const auto name_end = text.rfind(')'); name_end != std::string::npos)
    std::istringstream(text.substr(name_end + 1)) >> stat.state >> parent >> stat.group;
  return stat;
}

void kill_and_reap(pid_t pid) {
  const Fd pidfd(pidfd_open(pid));
  if (!pidfd)
    return;
  pidfd_signal(pidfd.get(), SIGKILL);
  siginfo_t info;
  if (ends_within(pidfd.get(), dies_within_ms))
    wait_pidfd(pidfd.get(), info, WNOHANG);
}

} // namespace

Subreaper::Subreaper() noexcept {
  const std::lock_guard lock(mutex);
  if (++subreapers > 1)
    return;
  ::prctl(PR_GET_CHILD_SUBREAPER, &flag_before);
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
}

Subreaper::~Subreaper() {
  const std::lock_guard lock(mutex);
  if (--subreapers == 0)
    ::prctl(PR_SET_CHILD_SUBREAPER, flag_before);
}

void reap_strangers(const std::vector<pid_t>& ranks) {
  siginfo_t info;
  for (const pid_t child : children_of_main_thread())
    if (!contains(ranks, child))
      ::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOHANG);
}

OrphanSweep::OrphanSweep() : before_(children_of_main_thread()) {}

void OrphanSweep::run(const std::string& token,
                      const std::vector<ino_t>& channels,
                      const std::vector<pid_t>& ranks) const {
  const std::string mark = fmt::format("{}={}", job_variable, token);
  const auto descends_from_rank = [&](pid_t pid) {
    const Stat stat = stat_of(pid);
    if (contains(ranks, stat.group))
      return true;
    if (stat.state == 'Z')
      return thread_names().size() == 1;
    return contents(fmt::format("/proc/{}/environ", pid)).find(mark) != std::string::npos ||
           has_open(pid, channels);
  };
  for (int round = 0; round < most_rounds; ++round) {
    bool found = false;
    for (const pid_t child : children_of_main_thread())
      if (!contains(before_, child) && descends_from_rank(child)) {
        kill_and_reap(child);
        found = true;
      }
    if (!found)
      return;
  }
}

} // namespace muster::process
