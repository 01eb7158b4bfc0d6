#include "sum.hpp"

int add_to_rank(muster::World& world, int number) { return world.rank + number; }
