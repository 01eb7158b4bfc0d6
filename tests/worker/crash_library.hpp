#pragma once

/// In a library without debug information.
void crash_in_library(volatile int* target);
