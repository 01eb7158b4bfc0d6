#pragma once

#include <muster/launch.hpp>

int add_to_rank(muster::World& world, int number);
