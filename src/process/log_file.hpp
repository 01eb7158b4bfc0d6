#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "fd.hpp"

namespace muster::process {

/// The file of one stream, byte-exact. A job does not end because of it: what cannot be written is
/// lost, and counted.
class LogFile {
public:
  /// Begins the file anew; what an earlier job has left there is renamed to PATH.1, in place of an
  /// older one. So is what has grown to `limit_bytes` (0: no limit), at the end of a line if there
  /// is one. Throws UsageError or SystemError that names the path.
  LogFile(std::string path, std::uint64_t limit_bytes);

  void write(std::string_view bytes);
  void close() noexcept { fd_.reset(); }

  const std::string& path() const noexcept { return path_; }
  int fd() const noexcept { return fd_.get(); }
  /// What was lost, and why.
  std::optional<std::string> note() const;

private:
  void open();
  bool rotate();
  std::size_t first_part(std::string_view bytes) const noexcept;
  bool put(std::string_view bytes);

  std::string path_;
  std::uint64_t limit_bytes_;
  Fd fd_;
  std::uint64_t size_ = 0;
  bool ends_with_line_ = true;
  std::uint64_t lost_bytes_ = 0;
  int write_error_ = 0;
  int rotate_error_ = 0;
};

/// Makes a directory and those above it, for this user only. Throws UsageError that names it.
void make_log_directory(const std::string& path);

/// Makes a fresh directory in $TMPDIR, or in /tmp, for this user only. Throws UsageError.
std::string make_temporary_log_directory();

} // namespace muster::process
