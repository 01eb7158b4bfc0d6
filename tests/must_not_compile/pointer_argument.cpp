#include <muster/launch.hpp>

#ifndef MUSTER_MUST_COMPILE
using Value = const char*;
#else
using Value = std::string;
#endif

void print(muster::World&, Value) {}

void test(muster::SpawnLauncher& launcher) { launcher.run(print, Value()); }
