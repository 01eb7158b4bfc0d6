#pragma once

// Everything of muster that needs no libtorch.
#include <muster/cluster/environment.hpp>
#include <muster/comm/store.hpp>
#include <muster/comm/world.hpp>
#include <muster/launch/codec.hpp>
#include <muster/launch/error.hpp>
#include <muster/launch/init.hpp>
#include <muster/launch/launcher.hpp>
#include <muster/launch/options.hpp>
#include <muster/launch/report.hpp>
#include <muster/launch/spawn_launcher.hpp>
#include <muster/launch/subprocess_launcher.hpp>
#include <muster/launch/task.hpp>
#include <muster/version.hpp>
