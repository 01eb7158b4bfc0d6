#include <muster/version.hpp>

const char* version_of_other_unit() { return MUSTER_VERSION; }
