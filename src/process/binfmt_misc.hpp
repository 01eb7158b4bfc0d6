#pragma once

#include <string>

namespace muster::process {

/// True if somebody has told the kernel (binfmt_misc) how to execute files that begin with `head`,
/// or whose name ends like `path`: emulators, Wine. `folder` is for tests.
bool has_binfmt_handler(const std::string& path,
                        const std::string& head,
                        const std::string& folder = "/proc/sys/fs/binfmt_misc");

} // namespace muster::process
