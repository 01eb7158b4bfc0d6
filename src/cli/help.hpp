#pragma once

#include <string>

namespace muster::cli {

/// `muster --help`.
std::string command_help();

/// `muster run --help`: every flag, at most 80 columns wide.
std::string run_help();

} // namespace muster::cli
