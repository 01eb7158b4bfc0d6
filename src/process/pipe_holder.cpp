#include "pipe_holder.hpp"

#include <charconv>
#include <fstream>
#include <memory>
#include <string_view>

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fmt/format.h>

namespace muster::process {

namespace {

using Directory = std::unique_ptr<DIR, decltype([](DIR* list) { ::closedir(list); })>;

/// Calls `visit(directory, name)` for each entry until it returns true; whether it did.
template <class F>
bool any_entry(const std::string& path, F visit) {
  const Directory list(::opendir(path.c_str()));
  while (list != nullptr) {
    const dirent* entry = ::readdir(list.get()); // NOLINT(concurrency-mt-unsafe): a list of our own
    if (entry == nullptr)
      return false;
    if (visit(::dirfd(list.get()), entry->d_name))
      return true;
  }
  return false;
}

/// The number that a process's folder is named by; 0 for others.
pid_t pid_from(std::string_view name) noexcept {
  pid_t pid = 0;
  std::from_chars(name.data(), name.data() + name.size(), pid);
  return pid;
}

bool can_write_to(pid_t pid, const struct stat& pipe) {
  return any_entry(fmt::format("/proc/{}/fd", pid), [&](int folder, const char* name) {
    struct stat link {}; // its mode tells how the descriptor was opened
    struct stat file {};
    return ::fstatat(folder, name, &file, 0) == 0 && file.st_ino == pipe.st_ino &&
           file.st_dev == pipe.st_dev && ::fstatat(folder, name, &link, AT_SYMLINK_NOFOLLOW) == 0 &&
           (link.st_mode & S_IWUSR) != 0;
  });
}

} // namespace

std::optional<std::string> pipe_holder(int fd) {
  struct stat pipe {};
  ::fstat(fd, &pipe);
  std::optional<std::string> holder;
  any_entry("/proc", [&](int, const char* name) {
    const pid_t pid = pid_from(name);
    if (pid <= 0 || pid == ::getpid() || !can_write_to(pid, pipe))
      return false;
    std::string command;
    std::ifstream file(fmt::format("/proc/{}/comm", pid));
    std::getline(file, command);
    holder = fmt::format("process {} ({})", pid, command);
    return true;
  });
  return holder;
}

} // namespace muster::process
