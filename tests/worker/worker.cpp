// A launcher program for tests: `worker KIND NPROCS MODE`. KIND is a start method of SpawnLauncher,
// "subprocess", or "run" for a rank of `muster run`. Prints "running" when every rank is, and what
// the launch returned.
#include <muster/launch.hpp>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <numeric>
#include <stdexcept>
#include <thread>

#include <unistd.h>

using muster::World;

namespace {

/// Rank 0 says "running" once all ranks have come here.
void all_running(World& world) {
  world.store->set(std::to_string(world.rank), "");
  for (int rank = 0; rank < world.size; ++rank)
    world.store->get(std::to_string(rank), std::chrono::minutes(1));
  if (world.rank == 0)
    std::puts("running");
}

[[noreturn]] void wait_for_ever() {
  for (;;)
    ::pause();
}

void hang(World& world) {
  all_running(world);
  wait_for_ever();
}

/// Every process in it ignores TERM and would live on: rank 1 through a shell with a child.
void grandchild(World& world) {
  if (world.rank == world.size - 1 && ::fork() == 0) {
    ::execl("/bin/sh", "sh", "-c", "trap '' TERM; sleep 1000 & wait", nullptr);
    ::_exit(127);
  }
  std::signal(SIGTERM, SIG_IGN);
  hang(world);
}

void finish(World& world) { all_running(world); }

void fail(World& world) {
  all_running(world);
  if (world.rank == world.size - 1)
    ::_exit(3);
  wait_for_ever();
}

// What comes back, and what does not.

double scaled(World& world, double factor) { return world.rank * factor; }

std::vector<std::int32_t> large(World& world, const std::vector<std::int32_t>& numbers) {
  std::vector<std::int32_t> all = numbers;
  for (std::int32_t& number : all)
    number += world.rank;
  return all;
}

std::string environment(World& world) {
  const auto variable = [](const char* name) { return std::string(std::getenv(name)); };
  if (variable("RANK") != std::to_string(world.rank) ||
      variable("WORLD_SIZE") != std::to_string(world.size) ||
      variable("LOCAL_RANK") != std::to_string(world.local_rank))
    throw std::logic_error("the variables are not those of the world");
  return world.source + "/" + std::to_string(world.attempt);
}

void throws(World& world) {
  all_running(world);
  if (world.rank == world.size - 1)
    throw std::domain_error("the loss is not finite");
  wait_for_ever();
}

/// Like a communicator that waits for a peer for ever.
struct Stuck {
  ~Stuck() { wait_for_ever(); }
};

void throws_in_the_way(World& world) {
  const Stuck stuck;
  throws(world);
}

void crashes(World& world) {
  all_running(world);
  if (world.rank == world.size - 1)
    std::abort(); // sanitizers leave this signal alone
  wait_for_ever();
}

void leaves_early(World& world) {
  if (world.rank == world.size - 1)
    std::exit(0);
  wait_for_ever();
}

void launches(World&) { muster::SpawnLauncher(muster::StartMethod::spawn, 1).run(finish); }

std::string restarted(World& world) {
  all_running(world);
  if (world.attempt < 2 && world.rank == world.size - 1)
    ::_exit(7);
  if (world.attempt < 2)
    wait_for_ever();
  return "attempt " + std::to_string(world.attempt);
}

template <class R>
void print(const std::vector<R>& results) {
  std::string line = "results";
  for (const R& result : results)
    if constexpr (std::is_same_v<R, std::string>)
      line += " " + result;
    else
      line += " " + std::to_string(result);
  std::puts(line.c_str());
}

int launch(muster::Launcher& launcher, const std::string& mode) {
  if (mode == "results") {
    print(launcher.run(scaled, 1.5));
  } else if (mode == "large") {
    std::vector<std::int64_t> sums;
    for (const auto& all : launcher.run(large, std::vector<std::int32_t>(3'000'000, 1)))
      sums.push_back(std::accumulate(all.begin(), all.end(), std::int64_t{0}));
    print(sums);
  } else if (mode == "environment") {
    print(launcher.run(environment));
  } else if (mode == "restarted") {
    print(launcher.run(restarted));
  } else {
    static const std::map<std::string, void (*)(World&)> functions = {{"hang", hang},
                                                                      {"grandchild", grandchild},
                                                                      {"finish", finish},
                                                                      {"fail", fail},
                                                                      {"throw", throws},
                                                                      {"stuck", throws_in_the_way},
                                                                      {"crash", crashes},
                                                                      {"leave", leaves_early},
                                                                      {"nested", launches},
                                                                      {"no-init", finish}};
    launcher.run(functions.at(mode));
  }
  return 0;
}

int launch(const std::string& kind, int nprocs, const std::string& mode) {
  muster::LaunchOptions options;
  options.grace = std::chrono::seconds(1);
  options.max_restarts = mode == "restarted" ? 2 : 0;
  if (kind == "run") {
    muster::SpawnLauncher launcher;
    return launch(launcher, mode);
  }
  if (kind == "subprocess") {
    muster::SubprocessLauncher launcher(muster::StartMethod::spawn, nprocs, options);
    const int code = launch(launcher, mode);
    return mode == "results" ? launch(launcher, mode) : code; // a second one is refused
  }
  muster::SpawnLauncher launcher(muster::start_method_from(kind), nprocs, options);
  return launch(launcher, mode);
}

} // namespace

int main(int argc, char** argv) {
  const bool forget_init = argc == 4 && std::string(argv[3]) == "no-init";
  if (!forget_init)
    muster::init(argc, argv);
  if (argc != 4)
    return 2;
  return muster::guard([&] { return launch(argv[1], std::atoi(argv[2]), argv[3]); });
}
