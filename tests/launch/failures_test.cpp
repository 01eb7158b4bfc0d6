#include <muster/launch/spawn_launcher.hpp>

#include <csignal>
#include <cstdlib>
#include <stop_token>
#include <thread>

#include "ranks.hpp"

using muster::Outcome;
using muster::RankFailure;
using muster::SpawnLauncher;
using muster::StartMethod;
using muster::World;
using test::quiet;
using namespace std::chrono_literals;

namespace {

void wait_for_ever(World& world) { world.store->get("never", 1h); }

/// Rank 1 goes wrong; the others wait for it.
void go_wrong(World& world, const std::string& how) {
  if (world.rank != 1)
    return wait_for_ever(world);
  if (how == "exception")
    throw std::runtime_error("boom");
  if (how == "number")
    throw 42;
  if (how == "exit 0")
    std::exit(0);
  if (how == "exit 3")
    ::_exit(3);
  if (how == "abort")
    std::abort();
  std::signal(SIGSEGV, SIG_DFL); // a sanitizer may have taken it
  if (how == "segfault")
    std::raise(SIGSEGV);
  if (how == "kill")
    ::kill(::getpid(), SIGKILL);
  if (how == "thread")
    std::thread([] { throw std::logic_error("in a thread"); }).join();
}

struct Expected {
  const char* how;
  int exit_code;
  const char* line;
};

constexpr Expected expectations[] = {
    {"exception", 1, "std::runtime_error: boom"},
    {"number", 1, "int: 42"},
    {"thread", 1, "std::logic_error: in a thread"},
    {"exit 0", 1, "exit code 0, it ended before its function returned"},
    {"exit 3", 3, "exit code 3"},
    {"abort", 134, "signal 6 (SIGABRT)"},
    {"segfault", 139, "signal 11 (SIGSEGV)"},
    {"kill", 137, "signal 9 (SIGKILL)"},
};

struct Hangs {
  ~Hangs() {
    for (;;)
      ::pause();
  }
};

void throw_past_a_hang(World& world) {
  if (world.rank != 0)
    return wait_for_ever(world);
  const Hangs wedged;
  throw std::runtime_error("the cause");
}

/// Rank 2 leaves with 7; the others see that and leave with 5, at once.
void echo(World& world) {
  if (world.rank == 2)
    ::_exit(7);
  try {
    wait_for_ever(world);
  } catch (const muster::RendezvousError&) {
    ::_exit(5);
  }
}

void lose_a_peer(World& world) {
  if (world.rank == 1)
    throw muster::RendezvousError("the job's store is closed: for a test");
  wait_for_ever(world);
}

void ignore_term(World& world) {
  std::signal(SIGTERM, SIG_IGN);
  world.store->add("ready", 1);
  if (world.rank == 0)
    while (world.store->add("ready", 0) < world.size)
      std::this_thread::yield();
  if (world.rank == 0)
    ::_exit(4);
  for (;;)
    ::pause();
}

#ifndef __SANITIZE_THREAD__
/// TERM arrives once, and the rank has time for its own end.
int count_terms(World& world) {
  static volatile std::sig_atomic_t terms = 0;
  std::signal(SIGTERM, [](int) { terms = terms + 1; });
  sigset_t block;
  sigset_t before;
  ::sigemptyset(&block);
  ::sigaddset(&block, SIGTERM); // until this rank waits for it
  ::sigprocmask(SIG_BLOCK, &block, &before);
  world.store->add("ready", 1);
  if (world.rank == 0) {
    while (world.store->add("ready", 0) < world.size)
      std::this_thread::yield();
    ::kill(::getppid(), SIGTERM);
  }
  while (terms == 0)
    ::sigsuspend(&before);
  return terms;
}
#endif

void say_what(World& world) {
  muster::progress("loading data, a text that is longer than what is kept");
  if (world.rank == 0)
    ::_exit(2);
  wait_for_ever(world);
}

} // namespace

TEST_CASE("each way to fail is reported as what it was, by every start method", "[failures]") {
  for (const StartMethod method : test::every_method)
    for (const Expected& expected : expectations) {
      INFO(to_string(method) << ", " << expected.how);
      SpawnLauncher launcher(method, 3, quiet());
      try {
        launcher.run(go_wrong, expected.how);
        FAIL("it did not throw");
      } catch (const RankFailure& failure) {
        CHECK(failure.first().rank == 1);
        CHECK(failure.first().outcome == Outcome::failed);
        CHECK(failure.exit_code() == expected.exit_code);
        CHECK_THAT(failure.what(), Catch::Contains(expected.line));
        CHECK(failure.report().ranks[0].outcome == Outcome::victim);
        CHECK(failure.report().ranks[2].outcome == Outcome::victim);
        CHECK(::kill(failure.first().pid, 0) == -1); // reaped
      }
    }
}

TEST_CASE("a failure is told before the others are stopped", "[failures]") {
  auto options = quiet();
  std::string told;
  options.on_failure = [&](const muster::RankReport& first) { told = to_line(first); };
  SpawnLauncher launcher(test::any_method, 2, options);
  CHECK_THROWS_AS(launcher.run(go_wrong, "exit 3"), RankFailure);
  CHECK_THAT(told, Catch::Contains("rank 1") && Catch::Contains("exit code 3"));
  options.on_failure = [](const muster::RankReport&) {
    throw std::logic_error("from the callback");
  };
  CHECK_THROWS_WITH(SpawnLauncher(test::any_method, 2, options).run(go_wrong, "exit 3"),
                    "from the callback");
}

TEST_CASE("an exception is reported even if a destructor on its way hangs", "[failures]") {
  for (const StartMethod method : test::every_method)
    CHECK_THROWS_WITH(SpawnLauncher(method, 2, quiet()).run(throw_past_a_hang),
                      Catch::Contains("the cause"));
}

TEST_CASE("the cause wins over its echoes, every time", "[failures]") {
  for (int round = 0; round < 20; ++round) {
    SpawnLauncher launcher(test::any_method, 4, quiet());
    CHECK_THROWS_AS(launcher.run(echo), RankFailure);
    CHECK(launcher.last_report().exit_code() == 7);
    CHECK(launcher.last_report().first == 2);
  }
}

TEST_CASE("a rank that only says it lost a peer is the cause when nobody else is", "[failures]") {
  SpawnLauncher launcher(test::any_method, 2, quiet());
  CHECK_THROWS_AS(launcher.run(lose_a_peer), RankFailure);
  CHECK(launcher.last_report().first == 1);
}

TEST_CASE("ranks that ignore TERM are killed when the grace is over", "[failures]") {
  auto options = quiet();
  options.grace = 200ms;
  SpawnLauncher launcher(test::any_method, 2, options);
  CHECK_THROWS_AS(launcher.run(ignore_term), RankFailure);
  CHECK(launcher.last_report().exit_code() == 4);
  CHECK(launcher.last_report().ranks[1].status == muster::ExitStatus::signaled(SIGKILL));
}

#ifndef __SANITIZE_THREAD__ // which holds signals back
TEST_CASE("a signal to the launcher reaches each rank once, and the job is Interrupted",
          "[failures]") {
  const test::DefaultDisposition term(SIGTERM);
  for (const StartMethod method : test::every_method) {
    INFO(to_string(method));
    SpawnLauncher launcher(method, 2, quiet());
    try {
      launcher.run(count_terms);
      FAIL("it did not throw");
    } catch (const muster::Interrupted& error) {
      CHECK(error.exit_code() == 128 + SIGTERM);
      CHECK_THAT(error.what(), Catch::Contains("SIGTERM"));
    }
    CHECK(launcher.results<int>() == std::vector<int>{1, 1});
  }
}
#endif

TEST_CASE("a stop token stops the job, also one that was stopped before", "[failures]") {
  for (const bool before : {true, false}) {
    std::stop_source source;
    auto options = quiet();
    options.stop = source.get_token();
    const auto children = test::children().size();
    std::jthread stopper([&] {
      if (!before) // as soon as both ranks are there
        test::eventually([&] { return test::children().size() >= children + 2; }, 30s);
      source.request_stop();
    });
    if (before)
      stopper.join();
    SpawnLauncher launcher(test::any_method, 2, options);
    CHECK_THROWS_AS(launcher.run(wait_for_ever), muster::Interrupted);
    CHECK(launcher.last_report().stopped);
    CHECK(launcher.last_report().exit_code() == 1);
  }
}

TEST_CASE("time limits name the ranks they caught", "[failures]") {
  auto options = quiet();
  options.timeout = 300ms;
  CHECK_THROWS_WITH(SpawnLauncher(test::any_method, 2, options).run(wait_for_ever),
                    Catch::Contains("did not end within 300 ms") && Catch::Contains("rank 1 (pid"));
  options = quiet();
  options.start_timeout = 300ms;
  options.grace = 0ms;
  ::setenv("MUSTER_FAULT", "rank-start:hang 0:1", 1);
  for (const StartMethod method : test::every_method)
    CHECK_THROWS_WITH(SpawnLauncher(method, 2, options).run(wait_for_ever),
                      Catch::Contains("not all functions were entered within 300 ms: rank 1") &&
                          !Catch::Contains("rank 0"));
  ::unsetenv("MUSTER_FAULT");
}

TEST_CASE("a rank that dies between its result and its end has no whole result", "[failures]") {
  ::setenv("MUSTER_FAULT", "rank-result:exit 0:1", 1);
  for (const StartMethod method : test::every_method)
    CHECK_THROWS_WITH(SpawnLauncher(method, 2, quiet()).run([](World&) { return 1; }),
                      Catch::Contains("before its function returned"));
  ::unsetenv("MUSTER_FAULT");
}

TEST_CASE("the report says what each rank was doing", "[failures]") {
  SpawnLauncher launcher(test::any_method, 2, quiet());
  CHECK_THROWS_AS(launcher.run(say_what), RankFailure);
  CHECK(launcher.last_report().ranks[0].phase == "running, 'loading data, a text that is lo'");
}

TEST_CASE("callbacks run at a rank's end, the latest first", "[failures]") {
  const auto with_callbacks = [](World& world) {
    const auto add = [store = world.store](const char* text) {
      return [store, text] { store->append("order", text); };
    };
    world.store->set("order", "");
    muster::at_rank_exit([store = world.store] {
      if (store->get("order", 10s) != "ba")
        ::_exit(6);
    });
    muster::at_rank_exit(add("a"));
    muster::at_rank_exit(add("b"));
  };
  SpawnLauncher(test::any_method, 1, quiet()).run(with_callbacks);
  CHECK_THROWS_AS(muster::at_rank_exit([] {}), muster::UsageError);
}

TEST_CASE("guard turns a failure into its exit code", "[failures]") {
  const auto code =
      muster::guard([] { SpawnLauncher(test::any_method, 2, quiet()).run(go_wrong, "exit 3"); });
  CHECK(code == 3);
  CHECK(muster::guard([] {}) == 0);
  CHECK(muster::guard([] { return 4; }) == 4);
  CHECK(muster::guard([] { throw muster::UsageError("for a test"); }) == 2);
}
