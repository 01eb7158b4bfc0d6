#pragma once

#include <muster/launch/options.hpp>

#include "reader.hpp"

namespace muster::cli {

/// Reads the flags about several nodes: place, meeting point and torchrun's rendezvous.
void read_nodes(Reader& reader, LaunchOptions& launch);

} // namespace muster::cli
