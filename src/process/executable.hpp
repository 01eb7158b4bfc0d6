#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace muster::process {

/// The file that execvp would run for `name`: the name itself if it has a slash, else the first one
/// in PATH that can be executed. Relative paths are seen from the current directory. Throws
/// ProgramError where exec would fail, or start an interpreter that cannot be found.
std::string find_program(const std::string& name);

/// What arguments and environment take in a new process.
struct ExecSizes {
  std::uint64_t total_bytes = 0;
  std::uint64_t longest_bytes = 0; ///< of one string, with its end
  std::string longest = {};        ///< what it is: "argument 2", "the variable PATH"
};

ExecSizes exec_sizes(const std::vector<std::string>& argv,
                     const std::vector<std::string>& environment);

/// One sentence on why exec of `path` failed with `error`, an errno value. `sizes` is for E2BIG.
std::string explain_exec_error(const std::string& path, int error, const ExecSizes& sizes = {});

} // namespace muster::process
