// What launchers do with their ranks' output when they are asked to.
#include <muster/launch/spawn_launcher.hpp>
#include <muster/launch/subprocess_launcher.hpp>

#include <cstdio>

#include "folder.hpp"
#include "ranks.hpp"

using muster::SpawnLauncher;
using muster::StartMethod;
using muster::SubprocessLauncher;
using muster::World;

namespace {

void speak(World& world) {
  std::printf("out %d\n", world.rank);
  std::fprintf(stderr, "err %d\n", world.rank);
  std::fflush(stdout);
  if (world.rank == 1)
    ::_exit(3);
  for (;;)
    ::pause();
}

muster::LaunchOptions logged(const test::Folder& folder) {
  auto options = test::quiet();
  options.logs = muster::LogOptions{.directory = folder.path(),
                                    .redirects = muster::StreamMap(muster::Streams::both)};
  return options;
}

} // namespace

TEST_CASE("files hold each rank's output, and the report its end, by every start method",
          "[logs]") {
  for (const StartMethod method : test::every_method) {
    INFO(to_string(method));
    const test::Folder folder;
    SpawnLauncher launcher(method, 2, logged(folder));
    CHECK_THROWS_AS(launcher.run(speak), muster::RankFailure);
    const muster::RankReport& failed = *launcher.last_report().first_failure();
    CHECK(failed.rank == 1);
    CHECK_THAT(failed.log_tail, Catch::Contains("out 1\n") && Catch::Contains("err 1\n"));
    CHECK(failed.log_files.size() == 2);
    CHECK(test::contents(folder / "attempt_0/1/stdout.log") == "out 1\n");
    CHECK(test::contents(folder / "attempt_0/1/stderr.log") == "err 1\n");
  }
}

TEST_CASE("a second job keeps the files of the first", "[logs]") {
  const test::Folder folder;
  for (const char* text : {"first", "second"})
    SubprocessLauncher(StartMethod::spawn, 1, logged(folder)).execute({{"echo", text}});
  CHECK(test::contents(folder / "attempt_0/0/stdout.log") == "second\n");
  CHECK(test::contents(folder / "attempt_0/0/stdout.log.1") == "first\n");
}

TEST_CASE("a program's failure is a RankFailure, and its success nothing", "[logs]") {
  SubprocessLauncher launcher(StartMethod::spawn, 2, test::quiet());
  launcher.execute({{"true"}});
  CHECK(launcher.last_report().ok());
  try {
    launcher.execute({{"sh", "-c", "exit $((RANK + 4))"}});
    FAIL("it was not told");
  } catch (const muster::RankFailure& failure) {
    CHECK((failure.exit_code() == 4 || failure.exit_code() == 5));
  }
  CHECK_THROWS_AS(launcher.execute({{"no-such-program"}}), muster::ProgramError);
  CHECK_THROWS_AS(SubprocessLauncher(StartMethod::fork, 2), muster::UsageError);
}
