#include <muster/version.hpp>

#include <cstring>

const char* version_of_other_unit();

int main() { return std::strcmp(muster::version(), version_of_other_unit()); }
