#include <muster/launch.hpp>

#ifndef MUSTER_MUST_COMPILE
std::unique_ptr<int> make(muster::World&) { return nullptr; }
#else
std::optional<int> make(muster::World&) { return std::nullopt; }
#endif

void test(muster::SpawnLauncher& launcher) { launcher.run(make); }
