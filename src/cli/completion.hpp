#pragma once

#include <string>

namespace muster::cli {

/// A script that makes bash complete the command line of muster: its commands, flags and their
/// values. It needs nothing but bash 4.
std::string bash_completion();

} // namespace muster::cli
