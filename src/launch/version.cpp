#include <muster/version.hpp>

namespace muster {

const char* version() noexcept { return MUSTER_VERSION; }

} // namespace muster
