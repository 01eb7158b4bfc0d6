#include <muster/launch.hpp>

struct Many {
  int a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p;
#ifndef MUSTER_MUST_COMPILE
  int q;
#endif
};

void take(muster::World&, const Many&) {}

void test(muster::SpawnLauncher& launcher) { launcher.run(take, Many{}); }
