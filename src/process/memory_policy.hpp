#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace muster::process {

/// Memory that the calling thread, and those it makes, touch for the first time from now on comes
/// from the NUMA nodes whose bits are set, and from others once these are full. No bits: nothing
/// changes. Where the kernel refuses (containers do) memory comes from the node that a thread runs
/// on. Async-signal-safe.
void apply_memory_policy(const std::uint64_t* mask, std::size_t bits) noexcept;

/// NUMA nodes that the calling thread may have memory from; empty where the kernel does not say.
std::vector<int> allowed_nodes();

} // namespace muster::process
