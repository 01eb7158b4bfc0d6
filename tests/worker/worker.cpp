// A launcher program for tests that kill it: `worker METHOD NPROCS MODE`. Prints "running" when
// every rank is, and leaves its ranks' fate to the one who started it.
#include <muster/launch.hpp>

#include <csignal>
#include <cstdio>
#include <cstdlib>
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

int launch(const std::string& method, int nprocs, const std::string& mode) {
  muster::LaunchOptions options;
  options.grace = std::chrono::seconds(1);
  muster::SpawnLauncher launcher(muster::start_method_from(method), nprocs, options);
  const auto function = mode == "hang"         ? hang
                        : mode == "grandchild" ? grandchild
                        : mode == "finish"     ? finish
                                               : fail;
  launcher.run(function);
  return 0;
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
