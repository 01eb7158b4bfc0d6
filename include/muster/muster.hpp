#pragma once

// Everything.
#include <muster/comm/backend.hpp>
#include <muster/comm/process_group.hpp>
#include <muster/comm/reduce_op.hpp>
#include <muster/comm/tensor_codec.hpp>
#include <muster/data/distributed_sampler.hpp>
#include <muster/launch.hpp>
#include <muster/strategy/ddp.hpp>
#include <muster/strategy/recipe.hpp>
#include <muster/strategy/single_device.hpp>
#include <muster/strategy/strategy.hpp>
