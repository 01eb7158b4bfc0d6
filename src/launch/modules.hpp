#pragma once

#include <string>
#include <vector>

namespace muster {

/// The build ids of all modules this process has loaded; empty strings for those without one.
std::vector<std::string> loaded_build_ids();

} // namespace muster
