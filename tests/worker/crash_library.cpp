#include "crash_library.hpp"

void crash_in_library(volatile int* target) { *target = 1; }
