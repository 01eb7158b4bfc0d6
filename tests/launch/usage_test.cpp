#include <muster/launch/spawn_launcher.hpp>

#include <cstdlib>
#include <thread>

#include <dlfcn.h>

#include "process/guardian.hpp"
#include "process/program.hpp"
#include "ranks.hpp"

using muster::SpawnLauncher;
using muster::StartMethod;
using muster::UsageError;
using muster::World;
using test::quiet;
using namespace std::chrono_literals;

namespace {

void nothing(World&) {}

/// Changes the task it is given, then hands it on.
template <class Change>
class Changed : public SpawnLauncher {
public:
  Changed(StartMethod method, Change change) : SpawnLauncher(method, 2, quiet()), change_(change) {}
  muster::JobReport spawn(muster::Task task) override {
    change_(task);
    return SpawnLauncher::spawn(std::move(task));
  }

private:
  Change change_;
};

template <class Change>
void check_refused(StartMethod method, const std::string& text, Change change) {
  INFO(to_string(method) << ", " << text);
  const std::size_t fds = test::count_fds();
  Changed launcher(method, change);
  CHECK_THROWS_AS(launcher.run(nothing), UsageError);
  CHECK_THROWS_WITH(launcher.run(nothing), Catch::Contains(text));
  CHECK(test::count_fds() == fds);
}

std::string launch_in_rank(World&) {
  try {
    SpawnLauncher(StartMethod::fork, 2).run(nothing);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "it was not refused";
}

} // namespace

TEST_CASE("nprocs out of range is refused with the number", "[usage]") {
  for (const int nprocs : {0, -1, 4097, 1'000'000'000}) {
    CHECK_THROWS_AS(SpawnLauncher(StartMethod::spawn, nprocs), UsageError);
    CHECK_THROWS_WITH(SpawnLauncher(StartMethod::spawn, nprocs),
                      Catch::Contains("nprocs is " + std::to_string(nprocs)));
  }
}

TEST_CASE("an unknown start method is refused with the list", "[usage]") {
  CHECK(muster::start_method_from("fork") == StartMethod::fork);
  CHECK_THROWS_WITH(muster::start_method_from("threads"),
                    Catch::Contains("'threads'") && Catch::Contains("spawn, fork, forkserver"));
}

TEST_CASE("a launch inside a rank is refused", "[usage]") {
  for (const StartMethod method : test::every_method)
    CHECK_THAT(SpawnLauncher(method, 1, quiet()).run(launch_in_rank)[0],
               Catch::Contains("launch inside a rank"));
}

TEST_CASE("a launch in a process that a rank started is refused", "[usage]") {
  ::setenv("MUSTER_JOB", "token", 1);
  CHECK_THROWS_WITH(SpawnLauncher().run(nothing), Catch::Contains("MUSTER_JOB is set"));
  ::unsetenv("MUSTER_JOB");
}

TEST_CASE("a world of others takes part inline, if nprocs agrees", "[usage]") {
  const std::pair<const char*, const char*> variables[] = {{"RANK", "1"},
                                                           {"WORLD_SIZE", "2"},
                                                           {"LOCAL_RANK", "1"},
                                                           {"LOCAL_WORLD_SIZE", "2"},
                                                           {"MASTER_ADDR", "127.0.0.1"},
                                                           {"MASTER_PORT", "29500"}};
  for (const auto& [name, value] : variables)
    ::setenv(name, value, 1);
  const auto where = [](World& world) {
    return std::pair(world.rank, static_cast<int>(::getpid()));
  };
  SpawnLauncher launcher(StartMethod::spawn, 2, quiet());
  CHECK(launcher.run(where) == std::vector{std::pair(1, static_cast<int>(::getpid()))});
  CHECK(SpawnLauncher().run(where).size() == 1);
  CHECK_THROWS_WITH(SpawnLauncher(StartMethod::spawn, 3).run(where),
                    Catch::Contains("nprocs is 3") && Catch::Contains("2 ranks"));
  ::setenv("LOCAL_RANK", "2", 1);
  CHECK_THROWS_AS(launcher.run(where), UsageError);
  for (const auto& [name, value] : variables)
    ::unsetenv(name);
}

TEST_CASE("what a task asks for is checked before anything starts", "[usage]") {
  for (const StartMethod method : test::every_method) {
    check_refused(method, "without ranks", [](auto& task) { task.ranks.clear(); });
    check_refused(method, "without work", [](auto& task) { task.work = {}; });
    check_refused(method, "stands where rank 1 (local rank 1) belongs", [](auto& task) {
      task.ranks[1].rank = 0;
    });
    check_refused(method, "'A=B'", [](auto& task) { task.ranks[1].env["A=B"] = "x"; });
    check_refused(method, "rank 1: CPU 4000", [](auto& task) { task.ranks[1].cpus = {4000}; });
    check_refused(method, "'/nowhere'", [](auto& task) { task.ranks[0].cwd = "/nowhere"; });
    check_refused(method, "'/nowhere'", [](auto& task) { task.ranks[0].input = "/nowhere"; });
  }
}

TEST_CASE("variables read at load are refused where ranks are forked", "[usage]") {
  for (const char* name : {"OMP_NUM_THREADS", "LD_PRELOAD", "MKL_NUM_THREADS", "GLIBC_TUNABLES"})
    for (const StartMethod method : {StartMethod::fork, StartMethod::forkserver})
      check_refused(method, name, [&](auto& task) { task.ranks[0].env[name] = "1"; });
  Changed spawned(StartMethod::spawn,
                  [](auto& task) { task.ranks[0].env["OMP_SCHEDULE"] = "static"; });
  spawned.run(nothing);
}

TEST_CASE("fork is refused while there are threads, and says their names", "[usage]") {
  std::atomic<bool> stop = false;
  std::thread other([&] {
    ::pthread_setname_np(::pthread_self(), "omp-like");
    while (!stop)
      std::this_thread::yield();
  });
  test::eventually([] {
    const auto names = muster::process::thread_names();
    return std::find(names.begin(), names.end(), "omp-like") != names.end();
  });
  std::string said;
  try {
    SpawnLauncher(StartMethod::fork, 2, quiet()).run(nothing);
  } catch (const UsageError& error) {
    said = error.what();
  }
  SpawnLauncher(StartMethod::forkserver, 2, quiet()).run(nothing); // was made before
  SpawnLauncher(StartMethod::spawn, 2, quiet()).run(nothing);
  stop = true;
  other.join();
  CHECK_THAT(said,
             Catch::Contains("2 threads") && Catch::Contains("omp-like") &&
                 Catch::Contains("forkserver"));
  SpawnLauncher(StartMethod::fork, 2, quiet()).run(nothing);
}

TEST_CASE("fork is refused after CUDA was used", "[usage]") {
  // A stand-in for the driver, whose cuDeviceGetCount says what FAKE_CUDA_RESULT says.
  void* driver = ::dlopen(MUSTER_FAKE_CUDA, RTLD_NOW);
  REQUIRE(driver != nullptr);
  ::setenv("FAKE_CUDA_RESULT", "3", 1); // not initialized
  SpawnLauncher(StartMethod::fork, 1, quiet()).run(nothing);
  ::setenv("FAKE_CUDA_RESULT", "0", 1);
  CHECK_THROWS_WITH(SpawnLauncher(StartMethod::fork, 1, quiet()).run(nothing),
                    Catch::Contains("CUDA"));
  SpawnLauncher(StartMethod::forkserver, 1, quiet()).run(nothing);
  ::unsetenv("FAKE_CUDA_RESULT");
  ::dlclose(driver);
}

TEST_CASE("a function of a library that ranks do not load is refused", "[usage]") {
  void* plugin = ::dlopen(MUSTER_TEST_PLUGIN, RTLD_NOW);
  REQUIRE(plugin != nullptr);
  using Function = int (*)(World&);
  const auto function = reinterpret_cast<Function>(::dlsym(plugin, "plugin_answer"));
  REQUIRE(function != nullptr);
  for (const StartMethod method : {StartMethod::spawn, StartMethod::forkserver})
    CHECK_THROWS_WITH(SpawnLauncher(method, 1, quiet()).run(function),
                      Catch::Contains("plugin") && Catch::Contains("after muster::init"));
  CHECK(SpawnLauncher(StartMethod::fork, 1, quiet()).run(function) == std::vector<int>{42});
  ::dlclose(plugin);
}

TEST_CASE("arguments of another type do not decode, and the rank says so", "[usage]") {
  const auto ask_for_text = [](World&, const std::string&) {};
  for (const StartMethod method : test::every_method) {
    Changed launcher(method, [](auto& task) {
      std::get<muster::Work>(task.work).arguments = muster::encode("test", 1);
    });
    CHECK_THROWS_WITH(launcher.run(ask_for_text, "text"), Catch::Contains("encoded bytes"));
  }
}

TEST_CASE("without a fork server forkserver is refused, and spawn works", "[usage]") {
  ::setenv("MUSTER_FORKSERVER", "0", 1);
  CHECK_THROWS_WITH(SpawnLauncher(StartMethod::forkserver, 1, quiet()).run(nothing),
                    Catch::Contains("MUSTER_FORKSERVER=0"));
  SpawnLauncher(StartMethod::spawn, 1, quiet()).run(nothing);
  ::unsetenv("MUSTER_FORKSERVER");
}
