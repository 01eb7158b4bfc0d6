#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <unistd.h>
#include <zlib.h>

#include <fmt/format.h>

/// An array of bytes in the idx format of MNIST.
struct Idx {
  std::string file;
  std::vector<std::int64_t> sizes;
  std::vector<std::uint8_t> bytes;
};

namespace idx_detail {

/// Takes up to `size` bytes of a file, whether it is compressed or not.
inline std::size_t take(gzFile_s* file, std::uint8_t* to, std::size_t size) {
  constexpr std::size_t piece = 1 << 20;
  std::size_t done = 0;
  while (done < size) {
    const int count =
        ::gzread(file, to + done, static_cast<unsigned>(std::min(piece, size - done)));
    if (count <= 0)
      break;
    done += static_cast<std::size_t>(count);
  }
  return done;
}

inline std::runtime_error
wrong_size(const std::string& name, std::size_t wanted, std::size_t found) {
  return std::runtime_error(
      fmt::format("{}: expected {} bytes (uncompressed), found {}", name, wanted, found));
}

} // namespace idx_detail

/// Reads `path` or `path`.gz, which has `dimensions` dimensions. Throws std::runtime_error of one
/// sentence that names the file, the expected and the found size.
inline Idx read_idx(const std::string& path, std::size_t dimensions) {
  const std::string name = ::access(path.c_str(), R_OK) == 0 ? path : path + ".gz";
  const std::unique_ptr<gzFile_s, int (*)(gzFile)> file(::gzopen(name.c_str(), "rb"), ::gzclose);
  if (!file)
    throw std::runtime_error(fmt::format("{} cannot be read, with or without .gz: install Debian's "
                                         "dataset-fashion-mnist, or name the folder with --data",
                                         path));
  ::gzbuffer(file.get(), 1 << 18);
  std::vector<std::uint8_t> head(4 + 4 * dimensions);
  const std::size_t head_found = idx_detail::take(file.get(), head.data(), head.size());
  if (head_found < head.size())
    throw idx_detail::wrong_size(name, head.size(), head_found);
  const auto magic = std::array<std::uint8_t, 4>{0, 0, 8, static_cast<std::uint8_t>(dimensions)};
  if (!std::equal(magic.begin(), magic.end(), head.begin()))
    throw std::runtime_error(
        fmt::format("{} is no idx file of bytes in {} dimensions", name, dimensions));
  Idx idx{name, {}, {}};
  std::size_t size = 1;
  for (std::size_t i = 0; i < dimensions; ++i) {
    std::uint32_t length = 0;
    for (std::size_t byte = 0; byte < 4; ++byte)
      length = length << 8U | head[4 + 4 * i + byte];
    idx.sizes.push_back(length);
    size *= length;
  }
  idx.bytes.resize(size + 1); // one more, to see whether the file is too long
  const std::size_t found = idx_detail::take(file.get(), idx.bytes.data(), idx.bytes.size());
  if (found != size)
    throw idx_detail::wrong_size(name, head.size() + size, head.size() + found);
  idx.bytes.resize(size);
  return idx;
}
