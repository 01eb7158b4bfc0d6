#include <torch/version.h>

// The configure step says this too, but not where a project brings its own `torch` target.
static_assert(TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 6),
              "muster needs libtorch 2.6 or newer");
