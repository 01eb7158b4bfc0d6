#include <muster/launch.hpp>

void test(muster::SpawnLauncher& launcher, int factor) {
#ifndef MUSTER_MUST_COMPILE
  launcher.run([factor](muster::World& world) { return world.rank * factor; });
#else
  launcher.run([](muster::World& world, int by) { return world.rank * by; }, factor);
#endif
}
