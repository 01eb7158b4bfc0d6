#pragma once

#include <muster/muster.hpp>

double train(muster::DDPStrategy& ddp, int steps);
