#pragma once

#include <optional>
#include <string>

namespace muster::process {

/// Why a file cannot be executed.
struct ExecProblem {
  int error = 0;    ///< what exec would say; 0 if exec itself would succeed
  std::string text; ///< the fault and the way out, to be read behind the file's name
};

/// What keeps an ELF file from being executed on this machine: another machine or class, not a
/// program, damaged, its dynamic loader missing. `file` is open for reading.
std::optional<ExecProblem> elf_problem(int file);

} // namespace muster::process
