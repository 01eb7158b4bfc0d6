#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "../process/fd.hpp"

namespace muster::process {

/// What a rank wrote about its own failure. Printable UTF-8; each text has at most 64 KiB.
struct ErrorText {
  std::string type; ///< of the exception; empty if unknown
  std::string message;
  std::string traceback;
  std::optional<double> time; ///< seconds since 1970
};

/// Reads a file in torchelastic's format, nested or flat, as far as it is whole. Whatever else it
/// holds becomes the message. nullopt if it is empty.
std::optional<ErrorText> parse_error_file(const std::string& bytes);

/// The files for TORCHELASTIC_ERROR_FILE, one for each rank: the rank writes, the launcher reads.
class ErrorFiles {
public:
  /// Files DIRECTORY/attempt_N/RANK/error.json for `ranks`; what an earlier job has left there is
  /// kept, as error.json.1. Memory files if `directory` is empty. Throws SystemError.
  ErrorFiles(const std::string& directory, int attempt, const std::vector<int>& ranks);

  /// For the environment of the `i`-th of the ranks. A memory file can only be opened while this
  /// object lives, by processes of the same user in the same PID namespace.
  const std::string& path(std::size_t i) const { return files_.at(i).path; }

  /// What the `i`-th rank has written, at most 1 MiB; empty if there is nothing to be read. Never
  /// blocks.
  std::string read(std::size_t i) const;

private:
  struct File {
    std::string path;
    Fd memory;
  };

  std::vector<File> files_;
};

} // namespace muster::process
