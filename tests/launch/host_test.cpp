// A launch leaves its host program as it was.
#include <muster/launch/spawn_launcher.hpp>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <thread>

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/time.h>
#include <sys/wait.h>

#include "process/guardian.hpp"
#include "process/program.hpp"
#include "ranks.hpp"

using muster::SpawnLauncher;
using muster::StartMethod;
using muster::World;
using test::quiet;
using namespace std::chrono_literals;

namespace {

void nothing(World&) {}

int rank_of(World& world) { return world.rank; }

void fail(World& world) {
  if (world.rank == 1)
    ::_exit(3);
  world.store->get("never", 1h);
}

/// What a launch must leave alone.
std::map<std::string, std::string> host_state() {
  std::map<std::string, std::string> all;
  const std::string status = test::contents("/proc/self/status");
  for (const char* field : {"SigBlk", "SigIgn", "SigCgt", "Cpus_allowed:", "Umask", "Threads"}) {
    const auto at = status.find(field);
    all[field] = status.substr(at, status.find('\n', at) - at);
  }
  int subreaper = 0;
  ::prctl(PR_GET_CHILD_SUBREAPER, &subreaper);
  all["subreaper"] = std::to_string(subreaper);
  char folder[4096] = {};
  all["cwd"] = ::getcwd(folder, sizeof folder) ? folder : "";
  for (char** variable = ::environ; *variable; ++variable)
    all["environment"] += std::string(*variable) + "\n";
  all["fds"] = std::to_string(test::count_fds());
  for (const pid_t child : test::children())
    all["children"] += std::to_string(child) + " ";
  return all;
}

/// A child of the host program that lives until it is told to go.
class OwnChild {
public:
  OwnChild() : pid_(::fork()) {
    if (pid_ == 0)
      for (;;)
        ::pause();
  }
  OwnChild(const OwnChild&) = delete;
  OwnChild& operator=(const OwnChild&) = delete;
  ~OwnChild() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  bool lives() const { return ::waitpid(pid_, nullptr, WNOHANG) == 0; }

private:
  pid_t pid_;
};

void leave_daemon(World& world, const std::string& kind) {
  int ready[2];
  if (::pipe2(ready, O_CLOEXEC) != 0)
    ::_exit(9);
  if (::fork() == 0) {
    ::setsid();
    if (::fork() == 0) { // twice: an orphan with a session of its own
      if (kind == "executed") {
        ::execl("/bin/sleep", "sleep", "1000", nullptr);
        ::_exit(9);
      }
      ::close(ready[1]);
      for (;;)
        ::pause();
    }
    ::_exit(0);
  }
  ::close(ready[1]);
  char byte = 0;
  [[maybe_unused]] const ssize_t end = ::read(ready[0], &byte, 1); // it was executed, or it closed
  if (world.rank == 1)
    ::kill(::getpid(), SIGKILL);
  ::waitpid(-1, nullptr, 0);
}

} // namespace

TEST_CASE("signals, descriptors, children, environment stay as they were", "[host]") {
  const OwnChild mine;
  const test::DefaultDisposition term(SIGTERM);
  SpawnLauncher(StartMethod::spawn, 1, quiet()).run(nothing); // makes what is kept, once
  const auto before = host_state();
  for (const StartMethod method : test::every_method) {
    INFO(to_string(method));
    SpawnLauncher(method, 3, quiet()).run(nothing);
    CHECK(host_state() == before);
    CHECK_THROWS_AS(SpawnLauncher(method, 3, quiet()).run(fail), muster::RankFailure);
    CHECK(host_state() == before);
    CHECK(mine.lives());
  }
}

TEST_CASE("a launch works with SIGCHLD ignored, and leaves it so", "[host]") {
  std::signal(SIGCHLD, SIG_IGN);
  for (const StartMethod method : test::every_method) {
    SpawnLauncher(method, 2, quiet()).run(nothing);
    CHECK_THROWS_WITH(SpawnLauncher(method, 2, quiet()).run(fail), Catch::Contains("exit code 3"));
  }
  CHECK(std::signal(SIGCHLD, SIG_DFL) == SIG_IGN);
}

TEST_CASE("a host that waits for any child does not see forked server ranks", "[host]") {
  std::atomic<bool> stop = false;
  std::atomic<int> stolen = 0;
  std::thread thief([&] {
    while (!stop)
      if (::waitpid(-1, nullptr, WNOHANG) > 0)
        ++stolen;
  });
  for (int i = 0; i < 20; ++i)
    SpawnLauncher(StartMethod::forkserver, 2, quiet()).run(nothing);
  stop = true;
  thief.join();
  CHECK(stolen == 0);
}

TEST_CASE("a host's handler for a signal is not replaced", "[host]") {
  static volatile std::sig_atomic_t mine = 0;
  mine = 0;
  const auto before = std::signal(SIGINT, [](int) { mine = mine + 1; });
  SpawnLauncher(StartMethod::forkserver, 1, quiet()).run([](World&) {
    ::kill(::getppid(), SIGINT);
  });
  std::signal(SIGINT, before);
  CHECK(mine == 1);
}

TEST_CASE("the thread that launched may end while others live", "[host]") {
  for (const StartMethod method : {StartMethod::spawn, StartMethod::forkserver}) {
    int results = 0;
    std::thread([&] {
      results = SpawnLauncher(method, 2, quiet()).run([](World& world) { return world.rank; })[1];
    }).join();
    CHECK(results == 1);
  }
}

TEST_CASE("daemons of ranks are found and killed while the launcher lives", "[host]") {
  for (const StartMethod method : test::every_method)
    for (const char* kind : {"executed", "forked"}) {
      INFO(to_string(method) << ", " << kind);
      const OwnChild mine;
      const auto before = host_state()["children"];
      CHECK_THROWS_AS(SpawnLauncher(method, 2, quiet()).run(leave_daemon, kind),
                      muster::RankFailure);
      CHECK(host_state()["children"] == before);
      CHECK(mine.lives());
    }
}

TEST_CASE("signals of the host that interrupt calls disturb no launch", "[host]") {
  struct sigaction before {};
  struct sigaction interrupting {}; // no SA_RESTART: calls end with EINTR
  interrupting.sa_handler = [](int) {};
  ::sigaction(SIGALRM, &interrupting, &before);
  const auto guardian_pid = [] { return std::stoi(host_state()["children"]); };
  const int guardian = guardian_pid();
  const itimerval often{{0, 200}, {0, 200}};
  ::setitimer(ITIMER_REAL, &often, nullptr);
  for (const StartMethod method : test::every_method)
    for (int round = 0; round < 20; ++round)
      CHECK(SpawnLauncher(method, 3, quiet()).run(rank_of) == std::vector<int>{0, 1, 2});
  const itimerval never{};
  ::setitimer(ITIMER_REAL, &never, nullptr);
  ::sigaction(SIGALRM, &before, nullptr);
  CHECK(guardian_pid() == guardian); // and it was not taken for dead
}

TEST_CASE("a guardian that somebody stopped does not hold the launcher's end", "[host]") {
  const pid_t launcher = ::fork();
  if (launcher == 0) {
    {
      const muster::process::Guardian guardian(false);
      pid_t pid = 0;
      std::sscanf(
          test::contents("/proc/self/task/" + std::to_string(::getpid()) + "/children").c_str(),
          "%d",
          &pid);
      ::kill(pid, SIGSTOP);
    }
    ::_exit(7);
  }
  int status = 0;
  REQUIRE(test::eventually([&] { return ::waitpid(launcher, &status, WNOHANG) == launcher; }, 30s));
  CHECK(WEXITSTATUS(status) == 7);
}

TEST_CASE("a guardian that was killed is replaced", "[host]") {
  const auto children = [] { return host_state()["children"]; };
  SpawnLauncher(StartMethod::forkserver, 2, quiet()).run(nothing);
  for (int round = 0; round < 3; ++round) {
    const int guardian = std::stoi(children());
    CHECK(test::contents("/proc/" + std::to_string(guardian) + "/comm") == "muster-guardian\n");
    ::kill(guardian, SIGKILL);
    test::eventually([&] {
      return test::contents("/proc/" + std::to_string(guardian) + "/stat").find(" Z ") !=
             std::string::npos;
    });
    SpawnLauncher(StartMethod::forkserver, 2, quiet()).run(nothing);
    CHECK(std::stoi(children()) != guardian);
  }
}

TEST_CASE("a guardian killed in the middle of a job costs the job nothing", "[host]") {
  const auto kill_it = [](World& world) {
    world.store->set(std::to_string(world.rank), "");
    world.store->wait({"0", "1"}, 10s);
    if (world.rank == 0) {
      const std::string list = test::contents("/proc/" + std::to_string(::getppid()) + "/task/" +
                                              std::to_string(::getppid()) + "/children");
      std::istringstream pids(list);
      for (int pid = 0; pids >> pid;)
        if (test::contents("/proc/" + std::to_string(pid) + "/comm") == "muster-guardian\n")
          ::kill(pid, SIGKILL);
    }
    return world.rank;
  };
  for (const StartMethod method : test::every_method)
    CHECK(SpawnLauncher(method, 2, quiet()).run(kill_it) == std::vector<int>{0, 1});
}
