#include "comm/notes.hpp"

#include "process/status_page.hpp"

namespace muster::comm {

CollectiveNote::CollectiveNote(const char* operation, std::uint64_t bytes) noexcept {
  if (process::RankSlot* slot = process::own_slot()) {
    slot->operation.set(operation);
    slot->bytes = bytes;
    slot->collectives.fetch_add(1);
    slot->in_flight_since = process::monotonic_ns();
  }
}

CollectiveNote::~CollectiveNote() {
  if (process::RankSlot* slot = process::own_slot()) {
    slot->in_flight_since = 0;
    slot->last_progress = process::monotonic_ns();
  }
}

void note_step() noexcept {
  if (process::RankSlot* slot = process::own_slot()) {
    slot->step.fetch_add(1);
    slot->last_progress = process::monotonic_ns();
  }
}

} // namespace muster::comm
