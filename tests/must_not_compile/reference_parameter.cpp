#include <muster/launch.hpp>

#ifndef MUSTER_MUST_COMPILE
void fill(muster::World&, std::vector<int>&) {}
#else
void fill(muster::World&, const std::vector<int>&) {}
#endif

void test(muster::SpawnLauncher& launcher) { launcher.run(fill, std::vector<int>{}); }
