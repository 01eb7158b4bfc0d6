#pragma once

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include "catch.hpp"
#include "process/fd.hpp"

// What tests of pumps share.
namespace test {

using Clock = std::chrono::steady_clock;
using muster::process::Fd;

/// Longer than anything here takes.
inline constexpr auto patience = std::chrono::seconds(20);

struct PipeEnds {
  Fd read;
  Fd write;
};

inline PipeEnds make_pipe() {
  int ends[2] = {-1, -1};
  REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
  return {Fd(ends[0]), Fd(ends[1])};
}

inline Fd duplicate(int fd) { return Fd(::fcntl(fd, F_DUPFD_CLOEXEC, 3)); }

/// Blocks until all of it has been written; false if it cannot be.
inline bool write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::write(fd, bytes.data(), bytes.size());
    if (count < 0)
      return false;
    bytes.remove_prefix(static_cast<std::size_t>(count));
  }
  return true;
}

/// What can be read now.
inline std::string read_available(int fd) {
  std::string text;
  char buffer[16384];
  for (pollfd readable{fd, POLLIN, 0}; ::poll(&readable, 1, 0) > 0;) {
    const ssize_t count = ::read(fd, buffer, sizeof buffer);
    if (count <= 0)
      break;
    text.append(buffer, static_cast<std::size_t>(count));
  }
  return text;
}

/// Reads to the end; blocks.
inline std::string read_to_end(int fd) {
  std::string text;
  char buffer[16384];
  for (ssize_t count = 0; (count = ::read(fd, buffer, sizeof buffer)) > 0;)
    text.append(buffer, static_cast<std::size_t>(count));
  return text;
}

inline std::string file_contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// A directory that goes with this object.
class TemporaryDirectory {
public:
  TemporaryDirectory() {
    std::string path = (std::filesystem::temp_directory_path() / "muster_test_XXXXXX").string();
    REQUIRE(::mkdtemp(path.data()) != nullptr);
    path_ = path;
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  ~TemporaryDirectory() { std::filesystem::remove_all(path_); }

  const std::string& path() const noexcept { return path_; }

private:
  std::string path_;
};

/// Bytes that do not repeat in a simple way.
inline std::string noise(std::size_t size) {
  std::string bytes(size, '\0');
  std::uint32_t state = 1;
  for (char& byte : bytes)
    byte = static_cast<char>((state = state * 1664525 + 1013904223) >> 24);
  return bytes;
}

} // namespace test
