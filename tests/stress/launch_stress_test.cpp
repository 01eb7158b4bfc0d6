// A thousand launches: no process, no descriptor and no memory is lost.
#include <muster/launch/spawn_launcher.hpp>

#include <sstream>

#include "ranks.hpp"

using muster::SpawnLauncher;
using muster::World;
using test::quiet;
using namespace std::chrono_literals;

namespace {

constexpr int launches = 1000;
constexpr int ranks = 4;

int meet(World& world) {
  world.store->set(std::to_string(world.rank), "here");
  for (int rank = 0; rank < world.size; ++rank)
    world.store->get(std::to_string(rank), 1min);
  return world.rank;
}

void fail_at_once(World& world) {
  if (world.rank == 2)
    ::_exit(3);
}

/// Resident pages of this process that belong to nothing but it.
long private_pages() {
  long size = 0;
  long resident = 0;
  long shared = 0;
  std::istringstream(test::contents("/proc/self/statm")) >> size >> resident >> shared;
  return resident - shared;
}

} // namespace

TEST_CASE("a thousand launches leak nothing", "[stress]") {
  for (const auto method : test::every_method) {
    INFO(to_string(method));
    SpawnLauncher launcher(method, ranks, quiet());
    std::size_t fds = 0;
    long pages = 0;
    std::vector<pid_t> before;
    for (int i = 0; i < launches; ++i) {
      if (i == launches / 10) { // warm by now
        fds = test::count_fds();
        pages = private_pages();
        before = test::children();
      }
      if (i % 10 == 9)
        CHECK_THROWS_AS(launcher.run(fail_at_once), muster::RankFailure);
      else
        REQUIRE(launcher.run(meet) == std::vector<int>{0, 1, 2, 3});
    }
    CHECK(test::count_fds() == fds);
    CHECK(test::children() == before);
    CHECK(private_pages() - pages < 64); // 256 KiB in 900 launches
  }
}

TEST_CASE("a wide launch works, and its store with it", "[stress]") {
  for (const auto method : test::every_method)
    CHECK(SpawnLauncher(method, 128, quiet()).run(meet).back() == 127);
}
