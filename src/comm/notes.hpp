#pragma once

#include <cstdint>

// What the torch side tells the job's status page. Costs nanoseconds; does nothing outside of a
// rank.
namespace muster::comm {

/// A collective that is in flight while this object lives.
class CollectiveNote {
public:
  CollectiveNote(const char* operation, std::uint64_t bytes) noexcept;
  CollectiveNote(const CollectiveNote&) = delete;
  CollectiveNote& operator=(const CollectiveNote&) = delete;
  ~CollectiveNote();
};

/// A training step has ended.
void note_step() noexcept;

} // namespace muster::comm
