#pragma once

#include <muster/comm/world.hpp>

#include <string>

#include <torch/csrc/distributed/c10d/Store.hpp>

// How the ranks of a group come together over a store, and part again.
namespace muster::comm {

/// A part of the store that belongs to this group alone: all ranks make the groups of one name in
/// the same order, so that each finds the same number from its own count.
c10::intrusive_ptr<c10d::Store> group_store(const c10::intrusive_ptr<c10d::Store>& store,
                                            const World& world,
                                            const std::string& name);

/// Waits until all ranks are there and compares the versions they run. Throws Timeout that names
/// the missing ranks, or RendezvousError, the same on all ranks, that names those that differ.
void call_the_roll(c10d::Store& store, const World& world, const std::string& name);

/// Waits until all ranks have come here, or the world's timeout is over. Rank 0 is the last to
/// return, since it may serve the store. Does not throw.
void part(c10d::Store& store, const World& world) noexcept;

} // namespace muster::comm
