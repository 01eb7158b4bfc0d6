#include <muster/launch.hpp>

int add(muster::World&, int a, int b) { return a + b; }

void test(muster::SpawnLauncher& launcher) {
#ifndef MUSTER_MUST_COMPILE
  launcher.run(add, 1);
#else
  launcher.run(add, 1, 2);
#endif
}
