#include "memory_policy.hpp"

#include <array>
#include <bit>
#include <cerrno>

#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace muster::process {

namespace {

constexpr int preferred_many = 5; // MPOL_PREFERRED_MANY, which older headers do not have

long set_policy(int mode, const std::uint64_t* mask, std::size_t bits) noexcept {
  return ::syscall(SYS_set_mempolicy, mode, mask, bits + 1); // the kernel takes one off
}

std::size_t count_bits(const std::uint64_t* mask, std::size_t bits) noexcept {
  std::size_t count = 0;
  for (std::size_t word = 0; word < bits / 64; ++word)
    count += static_cast<std::size_t>(std::popcount(mask[word]));
  return count;
}

} // namespace

void apply_memory_policy(const std::uint64_t* mask, std::size_t bits) noexcept {
  if (bits == 0)
    return;
  // Never MPOL_BIND: a rank that outgrows its nodes would be killed while others have memory.
  if (set_policy(preferred_many, mask, bits) == 0)
    return;
  // Linux before 5.15 prefers one node only; what several mean there, their CPUs bring about.
  if (errno == EINVAL && count_bits(mask, bits) == 1)
    set_policy(MPOL_PREFERRED, mask, bits);
}

std::vector<int> allowed_nodes() {
  std::array<std::uint64_t, 64> mask{};
  std::vector<int> nodes;
  if (::syscall(SYS_get_mempolicy,
                nullptr,
                mask.data(),
                mask.size() * 64,
                nullptr,
                MPOL_F_MEMS_ALLOWED) != 0)
    return nodes;
  for (std::size_t node = 0; node < mask.size() * 64; ++node)
    if ((mask[node / 64] >> (node % 64) & 1) != 0)
      nodes.push_back(static_cast<int>(node));
  return nodes;
}

} // namespace muster::process
