#pragma once

#include <muster/launch/blob.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

// One memory file per job, mapped by the launcher and by every rank: a slot per rank, written with
// plain atomics, read by whoever wants to know how the job is doing.
namespace muster::process {

enum class Phase : std::uint32_t { starting, decoding, running, returned };

/// A short text that one process writes and others read at any time; a reader may see a mix of two
/// texts, never anything else.
class SharedText {
public:
  static constexpr std::size_t capacity = 31;
  void set(std::string_view text) noexcept;
  std::string get() const;

private:
  std::atomic<std::uint64_t> words_[4] = {};
};

struct alignas(64) RankSlot {
  std::atomic<Phase> phase = Phase::starting;
  std::atomic<bool> linked = false;    // the rank's program writes here
  std::atomic<std::int32_t> owner = 0; // pid of a rank whose main goes on
  std::atomic<std::uint64_t> step = 0;
  std::atomic<std::uint64_t> collectives = 0;    // started so far
  std::atomic<std::uint64_t> bytes = 0;          // of the collective in flight
  std::atomic<std::int64_t> in_flight_since = 0; // ns of CLOCK_MONOTONIC; 0: none is in flight
  std::atomic<std::int64_t> last_progress = 0;   // ns of CLOCK_MONOTONIC
  SharedText operation;                          // of the collective in flight
  SharedText text;                               // from muster::progress
};

/// Nanoseconds of CLOCK_MONOTONIC, the same in all processes of a host.
std::int64_t monotonic_ns() noexcept;

class StatusPage {
public:
  StatusPage() noexcept = default;
  /// A page for `ranks` slots. Throws SystemError.
  static StatusPage create(std::size_t ranks);
  /// Maps a page that came by descriptor. Throws SystemError.
  static StatusPage map(Blob blob);

  RankSlot* slot(std::size_t local_rank) const noexcept {
    return local_rank < count_ ? slots_.get() + local_rank : nullptr;
  }
  int fd() const noexcept { return blob_.fd(); }

private:
  Blob blob_;
  std::shared_ptr<RankSlot> slots_;
  std::size_t count_ = 0;
};

/// What a rank is doing, empty if it does not say: "running, step 12, in all_reduce 34 (4096 bytes)
/// for 2.1 s, 'loading data'"
std::string describe(const RankSlot& slot);

/// This process's slot; nullptr if it is no rank.
RankSlot* own_slot() noexcept;

} // namespace muster::process
