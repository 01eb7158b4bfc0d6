// Launchers that are killed, stopped, interrupted: nothing of them lives on.
#include <csignal>
#include <cstdlib>
#include <random>
#include <thread>

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>

#include <fmt/format.h>

#include "ranks.hpp"

using namespace std::chrono_literals;

namespace {

/// Every way to start a muster program's ranks; see worker.cpp.
constexpr const char* every_kind[] = {"spawn", "fork", "forkserver", "subprocess", "run"};

/// A worker program with a mark in its environment, which all its descendants inherit.
class Worker {
public:
  Worker(const std::string& kind, int nprocs, const char* mode, const char* fault = nullptr) {
    static int count = 0;
    mark_ = fmt::format("MUSTER_TEST_MARK={}.{}.", ::getpid(), ++count);
    int out[2];
    REQUIRE(::pipe2(out, O_CLOEXEC) == 0);
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_adddup2(&actions, out[1], 1);
    ::posix_spawn_file_actions_adddup2(&actions, out[1], 2);
    std::vector<std::string> environment{mark_, "MUSTER_LOG=error"};
    if (fault)
      environment.push_back(std::string("MUSTER_FAULT=") + fault);
    const std::string number = std::to_string(nprocs);
    std::vector<const char*> argv;
    if (kind == "run")
      argv = {
          MUSTER_COMMAND, "run", "-n", number.c_str(), "--shutdown-timeout", "1", "--prefix", ""};
    argv.insert(argv.end(), {MUSTER_WORKER, kind.c_str(), number.c_str(), mode, nullptr});
    std::vector<char*> envp;
    for (std::string& variable : environment)
      envp.push_back(variable.data());
    envp.push_back(nullptr);
    REQUIRE(::posix_spawn(
                &pid_, argv[0], &actions, nullptr, const_cast<char**>(argv.data()), envp.data()) ==
            0);
    ::posix_spawn_file_actions_destroy(&actions);
    ::close(out[1]);
    output_ = out[0];
  }
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;
  ~Worker() {
    for (const pid_t pid : processes()) // only after a failed check
      ::kill(pid, SIGKILL);
    if (pid_ > 0)
      ::waitpid(pid_, nullptr, 0);
    ::close(output_);
  }

  /// Reads the output until `text` appears; false at its end.
  bool says(const std::string& text) {
    char buffer[4096];
    while (said_.find(text) == std::string::npos) {
      const ssize_t size = ::read(output_, buffer, sizeof buffer);
      if (size <= 0)
        return false;
      said_.append(buffer, static_cast<std::size_t>(size));
    }
    return true;
  }
  /// All of its output, to the end: when no process has it open any more.
  const std::string& output() {
    says(std::string(1, '\0'));
    return said_;
  }
  void kill(int signal) const { ::kill(pid_, signal); }
  /// Its exit code, or 128 + signal.
  int wait() {
    int status = 0;
    ::waitpid(std::exchange(pid_, -1), &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  std::vector<pid_t> processes() const { return test::processes_with(mark_); }
  bool nothing_left() const {
    return test::eventually([this] { return processes().empty(); });
  }

private:
  std::string mark_;
  pid_t pid_ = -1;
  int output_ = -1;
  std::string said_;
};

} // namespace

TEST_CASE("a killed launcher leaves nothing, also no grandchild that ignores TERM", "[orphans]") {
  for (const std::string kind : every_kind) {
    INFO(kind);
    Worker worker(kind, 3, "grandchild");
    REQUIRE(worker.says("running"));
    REQUIRE(test::eventually([&] { return worker.processes().size() >= 6; }));
    worker.kill(SIGKILL);
    CHECK(worker.wait() == 128 + SIGKILL);
    CHECK(worker.nothing_left());
    CHECK(worker.output() == "running\n"); // and its output has come to its end
  }
}

TEST_CASE("a launcher killed at any moment of its start leaves nothing", "[orphans]") {
  std::minstd_rand random(7);
  for (int round = 0; round < 30; ++round)
    for (const std::string kind : every_kind) {
      Worker worker(kind, 4, "grandchild");
      std::this_thread::sleep_for(std::chrono::microseconds(random() % 30'000));
      worker.kill(SIGKILL);
      worker.wait();
      INFO(kind << ", round " << round);
      REQUIRE(worker.nothing_left());
    }
}

TEST_CASE("a launcher killed between two births leaves nothing", "[orphans]") {
  for (const std::string kind : {"spawn", "fork", "subprocess", "run"}) {
    Worker worker(kind, 4, "grandchild", "launcher-start:signal 9:3");
    CHECK(worker.wait() == 128 + SIGKILL);
    CHECK(worker.nothing_left());
  }
}

TEST_CASE("INT, TERM, HUP end the job and the launcher, with 128 + signal", "[orphans]") {
  for (const std::string kind : every_kind)
    for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
      INFO(kind << ", signal " << signal);
      Worker worker(kind, 2, "hang");
      REQUIRE(worker.says("running"));
      worker.kill(signal);
      CHECK(worker.wait() == 128 + signal);
      CHECK(worker.nothing_left());
    }
}

TEST_CASE("a second signal does not wait for the grace", "[orphans]") {
  Worker worker("forkserver", 2, "grandchild");
  REQUIRE(worker.says("running"));
  worker.kill(SIGINT);
  worker.kill(SIGINT);
  CHECK(worker.wait() == 128 + SIGINT);
  CHECK(worker.nothing_left());
}

TEST_CASE("a failure ends everything, grandchildren that ignore TERM too", "[orphans]") {
  for (const std::string kind : every_kind) {
    INFO(kind);
    Worker worker(kind, 3, "fail");
    CHECK(worker.wait() == 3);
    CHECK(worker.nothing_left());
    CHECK_THAT(worker.output(),
               Catch::Contains("exit code 3; stopping the others") &&
                   Catch::Contains("* rank 2 (local rank 2"));
  }
}

TEST_CASE("a launch without init says which line is missing", "[orphans]") {
  Worker worker("spawn", 1, "no-init");
  CHECK(worker.wait() == 2);
  CHECK_THAT(worker.output(),
             Catch::Contains("`muster::init(argc, argv);` the first line of main"));
}

TEST_CASE("a job that ends well leaves nothing and an ended output", "[orphans]") {
  for (const std::string kind : every_kind) {
    Worker worker(kind, 2, "finish");
    CHECK(worker.wait() == 0);
    CHECK(worker.output() == "running\n");
    CHECK(worker.nothing_left());
  }
}
