#pragma once

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "catch.hpp"

// Programs that tests start, with a deadline for all that they do.
namespace test {

using namespace std::chrono_literals;

inline constexpr auto command_deadline = 60s;

struct CommandOptions {
  std::map<std::string, std::string> env = {};
  std::string input = {};
  std::string cwd = {};
  /// Called in the child before exec.
  std::function<void()> prepare = {};
};

/// A running program, its output collected. Killed when this goes out of scope.
class Command {
public:
  explicit Command(std::vector<std::string> argv, const CommandOptions& options = {}) {
    int in[2];
    int out[2];
    int err[2];
    REQUIRE(::pipe2(in, O_CLOEXEC) == 0);
    REQUIRE(::pipe2(out, O_CLOEXEC) == 0);
    REQUIRE(::pipe2(err, O_CLOEXEC) == 0);
    int executed[2];
    REQUIRE(::pipe2(executed, O_CLOEXEC) == 0);
    std::vector<char*> pointers;
    for (std::string& argument : argv)
      pointers.push_back(argument.data());
    pointers.push_back(nullptr);
    pid_ = ::fork();
    REQUIRE(pid_ >= 0);
    if (pid_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      ::dup2(in[0], 0);
      ::dup2(out[1], 1);
      ::dup2(err[1], 2);
      // Catch2's own handlers are gone with exec; what it ignores would stay.
      for (const auto& [name, value] : options.env)
        ::setenv(name.c_str(), value.c_str(), 1);
      if (!options.cwd.empty() && ::chdir(options.cwd.c_str()) != 0)
        ::_exit(125);
      if (options.prepare)
        options.prepare();
      ::execvp(pointers[0], pointers.data());
      ::_exit(125);
    }
    for (const int fd : {in[0], out[1], err[1], executed[1]})
      ::close(fd);
    // From the exec on it is the program that a signal reaches, and no copy of this one.
    char byte = 0;
    REQUIRE(::read(executed[0], &byte, 1) == 0);
    ::close(executed[0]);
    streams_[0] = {out[0]};
    streams_[1] = {err[0]};
    input_ = in[1];
    if (!options.input.empty())
      give(options.input);
  }
  Command(const Command&) = delete;
  Command& operator=(const Command&) = delete;
  ~Command() {
    if (!ended_) {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
    }
    close_input();
    for (const Stream& stream : streams_)
      if (stream.fd >= 0)
        ::close(stream.fd);
  }

  pid_t pid() const { return pid_; }
  const std::string& out() const { return streams_[0].text; }
  const std::string& err() const { return streams_[1].text; }
  void signal(int number) const { REQUIRE(::kill(pid_, number) == 0); }

  void give(const std::string& text) const {
    REQUIRE(::write(input_, text.data(), text.size()) == static_cast<ssize_t>(text.size()));
  }
  void close_input() {
    if (input_ >= 0)
      ::close(input_);
    input_ = -1;
  }

  /// Reads until `text` was seen `times` times on standard output.
  void wait_for(const std::string& text, int times = 1) {
    read_until([&] { return count(out(), text) >= times; });
    INFO("out: " << out() << "\nerr: " << err());
    REQUIRE(count(out(), text) >= times);
  }
  void wait_for_err(const std::string& text) {
    read_until([&] { return count(err(), text) >= 1; });
    INFO("out: " << out() << "\nerr: " << err());
    REQUIRE(count(err(), text) >= 1);
  }

  /// Waits for the end; the exit code, or 128 + signal. Everything it wrote is in out() and err().
  int wait() {
    close_input();
    read_until([] { return false; });
    const auto limit = std::chrono::steady_clock::now() + command_deadline;
    int status = 0;
    while (::waitpid(pid_, &status, WNOHANG) == 0) {
      INFO("out: " << out() << "\nerr: " << err());
      REQUIRE(std::chrono::steady_clock::now() < limit);
      ::usleep(1000); // it has closed its output, so its end is near
    }
    ended_ = true;
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  }

  static int count(const std::string& text, const std::string& part) {
    int found = 0;
    for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1))
      ++found;
    return found;
  }

private:
  struct Stream {
    int fd = -1;
    std::string text = {};
  };

  template <class F>
  void read_until(F done) {
    const auto limit = std::chrono::steady_clock::now() + command_deadline;
    while (!done() && (streams_[0].fd >= 0 || streams_[1].fd >= 0)) {
      pollfd ready[2] = {{streams_[0].fd, POLLIN, 0}, {streams_[1].fd, POLLIN, 0}};
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
          limit - std::chrono::steady_clock::now());
      INFO("out: " << out() << "\nerr: " << err());
      REQUIRE(left.count() > 0);
      ::poll(ready, 2, static_cast<int>(left.count()));
      for (int i = 0; i < 2; ++i)
        if (ready[i].revents != 0)
          read_once(streams_[i]);
    }
  }

  static void read_once(Stream& stream) {
    char buffer[65536];
    const ssize_t size = ::read(stream.fd, buffer, sizeof buffer);
    if (size > 0) {
      stream.text.append(buffer, static_cast<std::size_t>(size));
    } else {
      ::close(stream.fd);
      stream.fd = -1;
    }
  }

  pid_t pid_ = -1;
  bool ended_ = false;
  int input_ = -1;
  Stream streams_[2];
};

} // namespace test
