#include <muster/launch.hpp>

#include <cstdio>
#include <vector>

#include "sum.hpp"

int main(int argc, char** argv) {
  muster::init(argc, argv);
  return muster::guard([] {
    // The default launcher, and one that executes this file again.
    muster::SpawnLauncher forkserver{muster::StartMethod::forkserver, 2};
    muster::SpawnLauncher spawn{muster::StartMethod::spawn, 2};
    const std::vector<int> expected{10, 11};
    const bool right =
        forkserver.run(add_to_rank, 10) == expected && spawn.run(add_to_rank, 10) == expected;
    std::puts(right ? "two launches of two ranks" : "wrong results");
    return right ? 0 : 1;
  });
}
