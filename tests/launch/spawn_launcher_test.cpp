#include <muster/launch/spawn_launcher.hpp>

#include <atomic>
#include <cstdlib>
#include <fstream>
#include <numeric>
#include <thread>

#include <fcntl.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <fmt/format.h>

#include "ranks.hpp"

using muster::SpawnLauncher;
using muster::StartMethod;
using muster::World;
using test::quiet;
using namespace std::chrono_literals;

namespace {

struct Order {
  std::string what = {};
  std::vector<int> counts = {};
};

std::string deliver(World& world, const Order& order, double price) {
  const int total = std::accumulate(order.counts.begin(), order.counts.end(), 0);
  return fmt::format("{} {}/{}: {} x {} = {}",
                     world.source,
                     world.rank,
                     world.size,
                     total,
                     order.what,
                     price * total);
}

std::vector<unsigned char> pattern(std::size_t size, int rank) {
  std::vector<unsigned char> bytes(size, static_cast<unsigned char>(rank + 1));
  for (std::size_t i = 0; i < size; i += 509)
    bytes[i] = static_cast<unsigned char>(i / 509 * 7 + static_cast<std::size_t>(rank));
  return bytes;
}

std::vector<unsigned char> produce(World& world, std::size_t size) {
  return pattern(size, world.rank);
}

std::map<std::string, std::string> state(World&) {
  std::map<std::string, std::string> all;
  for (const char* name : {"MUSTER_TEST_VALUE",
                           "RANK",
                           "LOCAL_RANK",
                           "WORLD_SIZE",
                           "MASTER_ADDR",
                           "OMP_NUM_THREADS",
                           "MUSTER_CHANNEL"})
    all[name] = std::getenv(name) ? std::getenv(name) : "(unset)";
  char folder[4096] = {};
  all["cwd"] = ::getcwd(folder, sizeof folder) ? folder : "";
  const mode_t mask = ::umask(0);
  all["umask"] = std::to_string(mask);
  rlimit limit{};
  ::getrlimit(RLIMIT_CORE, &limit);
  all["core"] = std::to_string(limit.rlim_cur);
  cpu_set_t cpus;
  ::sched_getaffinity(0, sizeof cpus, &cpus);
  all["cpus"] = std::to_string(CPU_COUNT(&cpus));
  all["input"] = test::contents("/proc/self/fd/0");
  all["group"] = ::getpgid(0) == ::getpid() ? "own" : "shared";
  return all;
}

/// Keys over the store: all ranks see all others' values, whoever comes first.
std::int64_t meet(World& world) {
  const auto key = [](int rank) { return "rank" + std::to_string(rank); };
  world.store->set(key(world.rank), std::string(100'000, static_cast<char>('a' + world.rank)));
  std::int64_t sum = 0;
  for (int other = 0; other < world.size; ++other)
    sum += world.store->get(key(other), 30s)[99'999] - 'a';
  world.store->add("done", 1);
  while (world.store->add("done", 0) < world.size)
    std::this_thread::yield();
  return sum;
}

/// Threads of one rank that wait in the store at once, each for what a later one sets.
int chain(World& world, int threads) {
  std::vector<std::thread> all;
  std::atomic<int> good = 0;
  const auto key = [&](int i) { return fmt::format("{}.{}", world.rank, i); };
  for (int i = 0; i < threads; ++i)
    all.emplace_back([&, i] {
      good += world.store->get(key(i + 1), 30s) == "go";
      world.store->set(key(i), "go");
    });
  world.store->set(key(threads), "go");
  for (std::thread& thread : all)
    thread.join();
  return good;
}

std::string timed_out(World& world) {
  try {
    world.store->get("never", 50ms);
  } catch (const muster::Timeout& error) {
    return error.what();
  }
  return "no timeout";
}

class TunedLauncher : public SpawnLauncher {
public:
  using SpawnLauncher::SpawnLauncher;
  muster::JobReport spawn(muster::Task task) override {
    for (auto& rank : task.ranks) {
      rank.env["MUSTER_TEST_VALUE"] = fmt::format("value {}", rank.rank);
      rank.cpus = {allowed.at(static_cast<std::size_t>(rank.rank) % allowed.size())};
      rank.cwd = "/proc";
      rank.input = "/proc/sys/kernel/ostype";
      rank.extra["dataset"] = std::string("/scratch/\0a", 11);
    }
    return SpawnLauncher::spawn(std::move(task));
  }
  std::vector<int> allowed = test_cpus();

private:
  static std::vector<int> test_cpus() {
    cpu_set_t cpus;
    ::sched_getaffinity(0, sizeof cpus, &cpus);
    std::vector<int> all;
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
      if (CPU_ISSET(static_cast<std::size_t>(cpu), &cpus))
        all.push_back(cpu);
    return all;
  }
};

int cpu_and_extra(World& world) {
  if (world.extra.at("dataset") != std::string("/scratch/\0a", 11))
    throw std::runtime_error("extra bytes are wrong");
  return ::sched_getcpu();
}

int attempts(World& world, int good) {
  if (world.attempt != std::atoi(std::getenv("TORCHELASTIC_RESTART_COUNT")))
    ::_exit(9);
  world.store->set(std::to_string(world.rank), ""); // all have been running before one fails
  world.store->wait({"0", "1"}, 30s);
  if (world.attempt < good && world.rank == 1)
    ::_exit(5);
  if (world.attempt < good)
    world.store->get("never", 60s);
  return world.attempt;
}

} // namespace

TEST_CASE("results come back in rank order, for every start method", "[spawn_launcher]") {
  for (const StartMethod method : test::every_method) {
    INFO(to_string(method));
    SpawnLauncher launcher(method, 3, quiet());
    const auto results = launcher.run(deliver, Order{"tea", {1, 2}}, 1.5f);
    REQUIRE(results.size() == 3);
    CHECK(results[2] == "muster 2/3: 3 x tea = 4.5");
    CHECK(launcher.last_report().ok());
    CHECK(launcher.last_report().ranks[1].pid > 0);
  }
}

TEST_CASE("nprocs unset is one rank, and void returns nothing", "[spawn_launcher]") {
  SpawnLauncher launcher;
  CHECK(launcher.start_method() == StartMethod::forkserver);
  CHECK(launcher.plan().ranks.size() == 1);
  SpawnLauncher chosen(test::any_method);
  CHECK(chosen.run([](World& world) { return world.size; }) == std::vector<int>{1});
  chosen.run([](World&) {});
}

TEST_CASE("results of any size come back whole from every rank", "[spawn_launcher]") {
  const std::size_t size = GENERATE(0U, 65535U, 65536U, 65537U, 256U * 1024 * 1024);
  for (const StartMethod method : test::every_method) {
    INFO(to_string(method) << " " << size);
    SpawnLauncher launcher(method, 2, quiet());
    const auto results = launcher.run(produce, size);
    for (int rank = 0; rank < 2; ++rank)
      CHECK((results[static_cast<std::size_t>(rank)] == pattern(size, rank)));
  }
}

TEST_CASE("a large argument reaches every rank", "[spawn_launcher]") {
  const auto check = [](World&, const std::vector<unsigned char>& bytes) {
    return bytes == pattern(50'000'000, 0);
  };
  for (const StartMethod method : test::every_method)
    CHECK(SpawnLauncher(method, 2, quiet()).run(check, pattern(50'000'000, 0)) ==
          std::vector<bool>{true, true});
}

TEST_CASE("a rank has the launcher's state as it is at the launch", "[spawn_launcher]") {
  char folder[4096] = {};
  REQUIRE(::getcwd(folder, sizeof folder) != nullptr);
  REQUIRE(::chdir("/usr") == 0);
  const mode_t mask = ::umask(027);
  ::setenv("MUSTER_TEST_VALUE", "set after init", 1);
  rlimit before{};
  ::getrlimit(RLIMIT_CORE, &before);
  const rlimit lower{0, before.rlim_max};
  ::setrlimit(RLIMIT_CORE, &lower);
  for (const StartMethod method : test::every_method) {
    INFO(to_string(method));
    auto found = SpawnLauncher(method, 2, quiet()).run(state)[1];
    CHECK(found["MUSTER_TEST_VALUE"] == "set after init");
    CHECK(found["cwd"] == "/usr");
    CHECK(found["umask"] == std::to_string(027));
    CHECK(found["core"] == "0");
    CHECK(found["RANK"] == "1");
    CHECK(found["LOCAL_RANK"] == "1");
    CHECK(found["WORLD_SIZE"] == "2");
    CHECK(found["MASTER_ADDR"] == "127.0.0.1");
    CHECK(found["OMP_NUM_THREADS"] != "(unset)");
    CHECK(found["MUSTER_CHANNEL"] == "(unset)");
    CHECK(found["input"].empty());
    CHECK(found["group"] == "own");
  }
  ::setrlimit(RLIMIT_CORE, &before);
  ::unsetenv("MUSTER_TEST_VALUE");
  ::umask(mask);
  REQUIRE(::chdir(folder) == 0);
  CHECK(std::getenv("RANK") == nullptr); // nothing leaked into this process
}

TEST_CASE("an overridden spawn gives ranks environment, CPUs and bytes", "[spawn_launcher]") {
  for (const StartMethod method : test::every_method) {
    INFO(to_string(method));
    TunedLauncher launcher(method, 2, quiet());
    const auto states = launcher.run(state);
    const auto cpus = launcher.run(cpu_and_extra);
    for (std::size_t rank = 0; rank < 2; ++rank) {
      auto found = states[rank];
      CHECK(found["MUSTER_TEST_VALUE"] == fmt::format("value {}", rank));
      CHECK(found["cpus"] == "1");
      CHECK(found["cwd"] == "/proc");
      CHECK(found["input"] == "Linux\n");
      CHECK(cpus[rank] == launcher.allowed[rank % launcher.allowed.size()]);
    }
  }
}

TEST_CASE("ranks meet in the launcher's store", "[spawn_launcher]") {
  for (const StartMethod method : test::every_method) {
    INFO(to_string(method));
    CHECK(SpawnLauncher(method, 4, quiet()).run(meet) == std::vector<std::int64_t>(4, 6));
    CHECK(SpawnLauncher(method, 2, quiet()).run(chain, 8) == std::vector<int>{8, 8});
    CHECK_THAT(SpawnLauncher(method, 1, quiet()).run(timed_out)[0],
               Catch::Contains("no rank set 'never' within 50 ms"));
  }
}

TEST_CASE("threads per rank: chosen, inherited, or the CPUs shared out", "[spawn_launcher]") {
  const auto threads = [](World& world) {
    return std::to_string(world.threads) + " " + std::getenv("OMP_NUM_THREADS");
  };
  auto options = quiet();
  options.threads = 3;
  for (const StartMethod method : test::every_method)
    CHECK(SpawnLauncher(method, 1, options).run(threads)[0] == "3 3");
  CHECK(SpawnLauncher(StartMethod::spawn, 512, quiet()).plan().ranks.size() == 512);
  CHECK(SpawnLauncher(test::any_method, 64, quiet()).run(threads)[0] == "1 1");
}

TEST_CASE("launchers run at once in several threads", "[spawn_launcher]") {
  std::atomic<int> good = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&good, i] {
      const auto method = i % 2 == 0 ? test::any_method : StartMethod::spawn;
      for (int round = 0; round < 5; ++round)
        good += SpawnLauncher(method, 3, quiet()).run(meet) == std::vector<std::int64_t>(3, 3);
    });
  for (std::thread& thread : threads)
    thread.join();
  CHECK(good == 20);
}

TEST_CASE("a job is started again after a failure, as often as asked", "[spawn_launcher]") {
  auto options = quiet();
  options.max_restarts = 2;
  for (const StartMethod method : test::every_method) {
    INFO(to_string(method));
    SpawnLauncher launcher(method, 2, options);
    CHECK(launcher.run(attempts, 2) == std::vector<int>{2, 2});
    CHECK(launcher.last_report().attempt == 2);
    CHECK_THROWS_AS(launcher.run(attempts, 3), muster::RankFailure);
    CHECK(launcher.last_report().exit_code() == 5);
  }
}
