#pragma once

#include <cstdint>
#include <memory>

namespace muster {

/// Bytes in an anonymous file of memory (memfd): a rank's result or a task's arguments.
/// Copies share the file; it goes away with the last of them.
class Blob {
public:
  Blob() noexcept = default;

  /// A new empty file. `name` shows up in /proc/PID/maps. Throws SystemError.
  static Blob create(const char* name);

  /// Takes ownership of `fd`.
  static Blob adopt(int fd);

  /// The descriptor, or -1 for an empty blob.
  int fd() const noexcept { return file_ ? *file_ : -1; }

  /// The size in bytes. Throws SystemError.
  std::uint64_t size_bytes() const;

  /// Nobody can change the file from now on. Throws SystemError.
  void seal() const;

  explicit operator bool() const noexcept { return file_ != nullptr; }

private:
  std::shared_ptr<const int> file_;
};

} // namespace muster
