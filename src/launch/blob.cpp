#include <muster/launch/blob.hpp>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../process/sys.hpp"

namespace muster {

namespace sys = process::sys;

Blob Blob::create(const char* name) {
  return adopt(sys::checked("memfd_create",
                            [&] { return ::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING); }));
}

Blob Blob::adopt(int fd) {
  Blob blob;
  blob.file_ = std::shared_ptr<const int>(new int(fd), [](const int* owned) {
    ::close(*owned);
    delete owned;
  });
  return blob;
}

std::uint64_t Blob::size_bytes() const {
  if (!file_)
    return 0;
  struct stat info {};
  sys::checked("fstat of a memory file", [&] { return ::fstat(*file_, &info); });
  return static_cast<std::uint64_t>(info.st_size);
}

void Blob::seal() const {
  constexpr int seals = F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;
  sys::checked("sealing a memory file", [&] { return ::fcntl(fd(), F_ADD_SEALS, seals); });
}

} // namespace muster
