// Whatever the system refuses, and whenever: no rank is left, no descriptor, and the error says
// what.
#include <muster/launch/spawn_launcher.hpp>
#include <muster/launch/subprocess_launcher.hpp>

#include <cerrno>

#include "folder.hpp"
#include "process/sys.hpp"
#include "ranks.hpp"

using muster::SpawnLauncher;
using muster::StartMethod;
using muster::World;
using test::quiet;

namespace {

void nothing(World&) {}

/// Lets the k-th system call of a launch fail; false when the launch makes fewer.
bool launch_with_failure(StartMethod method, long k, int error) {
  muster::process::sys::fail_call(k, error);
  bool failed = false;
  std::string said;
  try {
    SpawnLauncher(method, 3, quiet()).run(nothing);
  } catch (const muster::SystemError& thrown) {
    failed = true;
    said = thrown.what();
    CHECK(thrown.error() == error);
  }
  const long made = muster::process::sys::calls_made();
  if (failed)
    CHECK_FALSE(said.empty());
  return made > k;
}

} // namespace

TEST_CASE("each system call of a launch may fail", "[all_or_nothing]") {
  for (const StartMethod method : test::every_method) {
    SpawnLauncher(method, 1, quiet()).run(nothing);
    const std::size_t fds = test::count_fds();
    const auto before = test::children();
    long k = 0;
    for (; launch_with_failure(method, k, k % 2 == 0 ? EMFILE : EAGAIN); ++k) {
      INFO(to_string(method) << ", call " << k);
      CHECK(test::count_fds() == fds);
      CHECK(test::children() == before);
    }
    CHECK(k > 15);                                  // the failures were really tried
    SpawnLauncher(method, 3, quiet()).run(nothing); // and left nothing broken
  }
}

TEST_CASE("each system call of a program's launch with log files may fail", "[all_or_nothing]") {
  const test::Folder folder;
  auto options = quiet();
  options.logs = muster::LogOptions{.directory = folder.path()};
  muster::SubprocessLauncher launcher(StartMethod::spawn, 3, options);
  launcher.execute({{"true"}});
  const std::size_t fds = test::count_fds();
  const auto before = test::children();
  long k = 0;
  bool failed = true;
  for (; failed; ++k) {
    INFO("call " << k);
    muster::process::sys::fail_call(k, k % 2 == 0 ? EMFILE : EAGAIN);
    try {
      launcher.execute({{"true"}});
    } catch (const muster::Error& error) {
      CHECK_FALSE(std::string(error.what()).empty());
    }
    failed = muster::process::sys::calls_made() > k;
    CHECK(test::count_fds() == fds);
    CHECK(test::children() == before);
  }
  CHECK(k > 15);
  launcher.execute({{"true"}});
}

TEST_CASE("the limit on open files is named, with the rank", "[all_or_nothing]") {
  std::string said;
  for (long k = 0; said.find("rank 2 could") == std::string::npos && k < 100; ++k) {
    muster::process::sys::fail_call(k, EMFILE);
    try {
      SpawnLauncher(StartMethod::spawn, 3, quiet()).run(nothing);
    } catch (const muster::SpawnFailure& failure) {
      said = failure.what();
    } catch (const muster::SystemError&) { // of what serves all ranks
    }
    muster::process::sys::calls_made();
  }
  CHECK_THAT(said,
             Catch::Contains("rank 2 could not be started: socketpair: Too many open files") &&
                 Catch::Contains("ulimit -n") && Catch::Contains("no rank is left running"));
}
