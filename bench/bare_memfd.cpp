// The bound of a result's way back: written into a memory file, read into fresh memory.
#include <memory>
#include <string>
#include <vector>

#include <sys/mman.h>

#include "serve.hpp"

namespace {

constexpr std::size_t size_bytes = std::size_t(256) << 20;

/// GB/s of a write and, if asked for, of the read after it.
double measure(const std::vector<char>& source, bool and_read) {
  const auto start = bench::Clock::now();
  const int fd = ::memfd_create("bare", MFD_CLOEXEC);
  for (std::size_t done = 0; done < size_bytes;) {
    const ssize_t count = ::write(fd, source.data() + done, size_bytes - done);
    if (count <= 0)
      std::_Exit(1);
    done += static_cast<std::size_t>(count);
  }
  const auto fresh = std::make_unique_for_overwrite<char[]>(size_bytes);
  for (std::size_t done = 0; and_read && done < size_bytes;) {
    const ssize_t count =
        ::pread(fd, fresh.get() + done, size_bytes - done, static_cast<off_t>(done));
    if (count <= 0)
      std::_Exit(1);
    done += static_cast<std::size_t>(count);
  }
  const double ms = bench::ms_since(start);
  ::close(fd);
  return size_bytes / ms / 1e6;
}

} // namespace

int main(int argc, char** argv) {
  const bool and_read = argc < 2 || std::string(argv[1]) != "write";
  const std::vector<char> source(size_bytes, 'x');
  return bench::serve([&] { return measure(source, and_read); });
}
