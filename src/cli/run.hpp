#pragma once

#include "run_options.hpp"

namespace muster::cli {

/// Does what `muster run` was asked for; the exit code of the command. Throws muster's errors.
int run(const RunOptions& options);

} // namespace muster::cli
