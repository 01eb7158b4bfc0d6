#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "fd.hpp"

namespace muster::process {

/// One of the launcher's standard streams, as ranks' output is shown on it: text is queued whole,
/// and written as far as the other side takes it. Nothing here blocks or raises a signal.
class Console {
public:
  /// `fd` is written through a description of its own where possible, since O_NONBLOCK on a shared
  /// one would change it for others too. `name` is for notes. A closed `fd` is a console that is
  /// not open. Throws SystemError.
  Console(int fd, std::string name);

  /// False once it cannot be written any more: then append and flush do nothing.
  bool is_open() const noexcept { return static_cast<bool>(fd_); }
  bool is_terminal() const noexcept;
  bool is_same_file_as(const Console& other) const noexcept;

  void append(std::string_view prefix, std::string_view mark, std::string_view text);
  void flush();

  /// To be watched for EPOLLOUT while blocked(), and flushed then.
  int fd() const noexcept { return fd_.get(); }
  bool blocked() const noexcept { return blocked_; }
  /// So much waits that no more should be appended; until most of it has gone.
  bool full() const noexcept { return full_; }
  std::size_t pending_bytes() const noexcept { return pending_.size() - written_; }

  /// For a console that nobody reads: drops what waits, and closes.
  void give_up();
  /// Names it after a stream that shares it, too.
  void share_with(const Console& other) { name_ += " and " + other.name_; }
  /// Why it is not open.
  std::optional<std::string> note() const;

private:
  enum class Kind { own, socket, shared };

  ssize_t write_some(std::string_view bytes) const noexcept;
  void measure() noexcept;
  void close(int error) noexcept;

  std::string name_;
  Kind kind_ = Kind::own;
  Fd fd_;
  std::string pending_;
  std::size_t written_ = 0; // of pending_
  bool blocked_ = false;
  bool full_ = false;
  int error_ = 0;
  std::size_t given_up_bytes_ = 0;
};

} // namespace muster::process
