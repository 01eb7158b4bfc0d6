#pragma once

/// The version of these headers. The build, the packages and the roll call of the ranks read it
/// here.
#define MUSTER_VERSION "0.1.0"

namespace muster {

/// The version of the library that is linked. It differs from MUSTER_VERSION only where headers and
/// library come from two installations.
const char* version() noexcept;

} // namespace muster
