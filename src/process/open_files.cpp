#include "open_files.hpp"

#include <muster/launch/error.hpp>

#include <dirent.h>

#include <fmt/format.h>

namespace muster::process {

namespace {

constexpr std::size_t per_rank = 12; // channel, pipes, memory files and pidfd, while it is born
constexpr std::size_t besides = 32;

std::size_t count_open() {
  DIR* list = ::opendir("/proc/self/fd");
  if (list == nullptr)
    return 0;
  std::size_t count = 0;
  while (::readdir(list) != nullptr)
    ++count;
  ::closedir(list);
  return count;
}

} // namespace

OpenFileLimit::OpenFileLimit(std::size_t ranks) {
  ::getrlimit(RLIMIT_NOFILE, &before_);
  std::size_t needed = besides + ranks * per_rank;
  if (needed + besides <= before_.rlim_cur / 2)
    return; // surely enough, without a look at what is open
  needed += count_open();
  if (needed <= before_.rlim_cur)
    return;
  if (needed > before_.rlim_max)
    throw UsageError(
        fmt::format("{} ranks need {} open files in this process, and its hard limit is "
                    "{}: raise it (ulimit -Hn), or start fewer ranks",
                    ranks,
                    needed,
                    before_.rlim_max));
  const rlimit raised{needed, before_.rlim_max};
  raised_ = ::setrlimit(RLIMIT_NOFILE, &raised) == 0;
}

OpenFileLimit::~OpenFileLimit() {
  if (raised_)
    ::setrlimit(RLIMIT_NOFILE, &before_);
}

} // namespace muster::process
