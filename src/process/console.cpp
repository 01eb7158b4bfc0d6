#include "console.hpp"

#include <algorithm>
#include <cerrno>

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fmt/format.h>

#include "quiet_write.hpp"
#include "sys.hpp"

namespace muster::process {

namespace {

constexpr std::size_t full_from_bytes = 256 * 1024;
constexpr std::size_t not_full_below_bytes = 64 * 1024;
constexpr std::size_t taken_without_blocking = 4096; // by a pipe that poll calls writable

mode_t kind_of_file(int fd) noexcept {
  struct stat info {};
  ::fstat(fd, &info);
  return info.st_mode & S_IFMT;
}

} // namespace

Console::Console(int fd, std::string name)
    : name_(std::move(name)), fd_(::fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1)) {
  if (!fd_) {
    error_ = errno;
    if (error_ != EBADF)
      throw SystemError("keeping a copy of " + name_, error_);
    return;
  }
  const mode_t file = kind_of_file(fd_.get());
  if (file == S_IFSOCK)
    kind_ = Kind::socket;
  if (file != S_IFIFO && file != S_IFCHR)
    return;
  Fd own(::open(fmt::format("/proc/self/fd/{}", fd_.get()).c_str(),
                O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  if (own)
    fd_ = std::move(own);
  else if (errno == ENXIO && file == S_IFIFO)
    close(EPIPE); // a named pipe without a reader
  else
    kind_ = Kind::shared; // it is another user's
}

bool Console::is_terminal() const noexcept { return is_open() && ::isatty(fd_.get()) == 1; }

bool Console::is_same_file_as(const Console& other) const noexcept {
  struct stat mine {};
  struct stat its {};
  return ::fstat(fd_.get(), &mine) == 0 && ::fstat(other.fd_.get(), &its) == 0 &&
         mine.st_dev == its.st_dev && mine.st_ino == its.st_ino;
}

void Console::append(std::string_view prefix, std::string_view mark, std::string_view text) {
  if (!is_open())
    return;
  if (written_ > full_from_bytes) {
    pending_.erase(0, written_);
    written_ = 0;
  }
  pending_.append(prefix).append(mark).append(text);
  measure();
}

void Console::flush() {
  blocked_ = false;
  while (is_open() && pending_bytes() > 0) {
    const ssize_t count = write_some(std::string_view(pending_).substr(written_));
    if (count >= 0) {
      written_ += static_cast<std::size_t>(count);
    } else if (errno == EAGAIN) {
      blocked_ = true;
      return measure();
    } else {
      close(errno);
    }
  }
  pending_.clear();
  written_ = 0;
  full_ = false;
  if (pending_.capacity() > 2 * full_from_bytes)
    pending_.shrink_to_fit();
}

ssize_t Console::write_some(std::string_view bytes) const noexcept {
  if (kind_ == Kind::socket)
    return ::send(fd_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  if (kind_ == Kind::own)
    return write_quietly(fd_.get(), bytes);
  pollfd writable{fd_.get(), POLLOUT, 0};
  if (::poll(&writable, 1, 0) <= 0) {
    errno = EAGAIN;
    return -1;
  }
  return write_quietly(fd_.get(), bytes.substr(0, taken_without_blocking));
}

void Console::measure() noexcept {
  const std::size_t bytes = pending_bytes();
  full_ = blocked_ && bytes >= (full_ ? not_full_below_bytes : full_from_bytes);
}

void Console::close(int error) noexcept {
  error_ = error;
  fd_.reset();
}

void Console::give_up() {
  if (!is_open())
    return;
  flush();
  given_up_bytes_ = pending_bytes();
  close(0);
  flush();
}

std::optional<std::string> Console::note() const {
  if (is_open())
    return std::nullopt;
  if (error_ == 0)
    return fmt::format(
        "{}: {} bytes were not shown, since nobody read them", name_, given_up_bytes_);
  return fmt::format("{}: it cannot be written ({}), so that the ranks' output is not shown there",
                     name_,
                     sys::error_text(error_));
}

} // namespace muster::process
