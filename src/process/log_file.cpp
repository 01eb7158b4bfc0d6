#include "log_file.hpp"

#include <muster/launch/error.hpp>

#include <cerrno>
#include <cstdlib>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fmt/format.h>

#include "quiet_write.hpp"
#include "sys.hpp"

namespace muster::process {

namespace {

constexpr mode_t private_directory = 0700;
constexpr mode_t private_file = 0600;

std::string older(const std::string& path) { return path + ".1"; }

[[noreturn]] void refuse(const std::string& path, int error) {
  if (error == EMFILE)
    throw SystemError(fmt::format("opening {} (raise the limit on open files, ulimit -n)", path),
                      error);
  throw UsageError(fmt::format("logs cannot be written to {}: {}; name a directory that this user "
                               "may write to",
                               path,
                               sys::error_text(error)));
}

} // namespace

void make_log_directory(const std::string& path) {
  for (std::size_t end = 0; end != std::string::npos;) {
    end = path.find('/', end + 1);
    const std::string part = path.substr(0, end);
    const bool made = sys::call([&] { return ::mkdir(part.c_str(), private_directory); }) == 0;
    const int error = made ? 0 : errno;
    if (!made && ::access(part.c_str(), F_OK) != 0)
      refuse(part, error);
  }
}

std::string make_temporary_log_directory() {
  const char* parent = ::secure_getenv("TMPDIR");
  std::string path =
      fmt::format("{}/muster_logs_XXXXXX", parent != nullptr && *parent != '\0' ? parent : "/tmp");
  if (sys::call([&] { return ::mkdtemp(path.data()) != nullptr ? 0 : -1; }) != 0)
    refuse(path, errno);
  return path;
}

LogFile::LogFile(std::string path, std::uint64_t limit_bytes)
    : path_(std::move(path)), limit_bytes_(limit_bytes) {
  struct stat info {};
  const bool kept = ::stat(path_.c_str(), &info) == 0 && S_ISREG(info.st_mode) && info.st_size > 0;
  if (kept && sys::call([&] { return ::rename(path_.c_str(), older(path_).c_str()); }) != 0)
    refuse(path_, errno);
  open();
  if (!fd_)
    refuse(path_, errno);
}

void LogFile::open() {
  fd_ = Fd(sys::call([&] {
    return ::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, private_file);
  }));
  size_ = 0;
}

void LogFile::write(std::string_view bytes) {
  while (limit_bytes_ > 0 && bytes.size() > limit_bytes_ - size_) {
    const std::size_t part = first_part(bytes);
    const bool written = put(bytes.substr(0, part));
    bytes.remove_prefix(part);
    if (!written) {
      lost_bytes_ += bytes.size();
      return; // and the older file stays
    }
    if (!rotate())
      limit_bytes_ = 0;
  }
  put(bytes);
}

/// How much of `bytes`, which are too many, goes to the file before it is renamed.
std::size_t LogFile::first_part(std::string_view bytes) const noexcept {
  const std::size_t room = limit_bytes_ - size_;
  const std::size_t line_end = bytes.substr(0, room).rfind('\n');
  if (line_end != std::string_view::npos)
    return line_end + 1;
  return size_ > 0 && ends_with_line_ ? 0 : room;
}

bool LogFile::rotate() {
  if (sys::call([&] { return ::rename(path_.c_str(), older(path_).c_str()); }) != 0) {
    rotate_error_ = errno;
    return false;
  }
  open();
  if (!fd_)
    write_error_ = errno;
  return true;
}

bool LogFile::put(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t count = fd_ ? write_quietly(fd_.get(), bytes) : -1;
    if (count < 0) {
      write_error_ = fd_ ? errno : write_error_;
      lost_bytes_ += bytes.size();
      return false;
    }
    size_ += static_cast<std::uint64_t>(count);
    ends_with_line_ = bytes[static_cast<std::size_t>(count) - 1] == '\n';
    bytes.remove_prefix(static_cast<std::size_t>(count));
  }
  return true;
}

std::optional<std::string> LogFile::note() const {
  std::string text;
  if (lost_bytes_ > 0)
    text = fmt::format("{}: {} bytes could not be written ({})",
                       path_,
                       lost_bytes_,
                       sys::error_text(write_error_));
  if (rotate_error_ != 0)
    text += fmt::format("{}{}: it grows beyond its limit, since it could not be renamed ({})",
                        text.empty() ? "" : "; ",
                        path_,
                        sys::error_text(rotate_error_));
  return text.empty() ? std::nullopt : std::optional(text);
}

} // namespace muster::process
