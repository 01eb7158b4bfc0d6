#pragma once

#include <muster/launch.hpp>

#include <chrono>
#include <csignal>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include <dirent.h>
#include <unistd.h>

#include "catch.hpp"

// What tests of launchers share.
namespace test {

using namespace std::chrono_literals;

// A thread sanitizer does not follow into forked processes.
#ifdef __SANITIZE_THREAD__
inline constexpr muster::StartMethod every_method[] = {muster::StartMethod::spawn};
#else
inline constexpr muster::StartMethod every_method[] = {
    muster::StartMethod::spawn, muster::StartMethod::fork, muster::StartMethod::forkserver};
#endif

/// The last of them, for tests to which it makes no difference.
inline constexpr muster::StartMethod any_method = *std::rbegin(every_method);

/// Options that say nothing on stderr and do not wait long.
inline muster::LaunchOptions quiet() {
  muster::LaunchOptions options;
  options.grace = 5s;
  options.start_timeout = 60s;
  options.on_failure = nullptr;
  return options;
}

/// The open descriptors of this process, less the one that lists them.
inline std::size_t count_fds() {
  std::size_t count = 0;
  DIR* list = ::opendir("/proc/self/fd");
  while (::readdir(list) != nullptr)
    ++count;
  ::closedir(list);
  return count;
}

/// What can be read of a file: nothing of one under /proc whose process has just gone.
inline std::string contents(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

/// The children of this process's main thread, zombies included.
inline std::vector<pid_t> children() {
  const std::string self = std::to_string(::getpid());
  std::ifstream list("/proc/self/task/" + self + "/children");
  return {std::istream_iterator<pid_t>(list), {}};
}

/// Living processes (no zombies) that were started with `text` in their environment.
inline std::vector<pid_t> processes_with(const std::string& text) {
  std::vector<pid_t> found;
  DIR* list = ::opendir("/proc");
  while (const dirent* entry = ::readdir(list)) {
    const std::string folder = std::string("/proc/") + entry->d_name;
    if (entry->d_name[0] >= '1' && entry->d_name[0] <= '9' &&
        contents(folder + "/environ").find(text) != std::string::npos)
      found.push_back(std::stoi(entry->d_name));
  }
  ::closedir(list);
  return found;
}

/// The default disposition of a signal that Catch2 handles, while this lives.
class DefaultDisposition {
public:
  explicit DefaultDisposition(int signal)
      : signal_(signal), before_(std::signal(signal, SIG_DFL)) {}
  DefaultDisposition(const DefaultDisposition&) = delete;
  DefaultDisposition& operator=(const DefaultDisposition&) = delete;
  ~DefaultDisposition() { std::signal(signal_, before_); }

private:
  int signal_;
  void (*before_)(int);
};

/// Waits until `done()` or the deadline; true if it was done.
template <class F>
bool eventually(F done, std::chrono::milliseconds within = 5s) {
  const auto limit = std::chrono::steady_clock::now() + within;
  while (!done()) {
    if (std::chrono::steady_clock::now() >= limit)
      return false;
    ::usleep(2000); // between two looks at /proc, which has no event to wait for
  }
  return true;
}

} // namespace test
