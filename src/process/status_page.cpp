#include "status_page.hpp"

#include <muster/launch/error.hpp>

#include <algorithm>
#include <cstring>
#include <ctime>
#include <new>

#include <sys/mman.h>
#include <unistd.h>

#include <fmt/format.h>

#include "sys.hpp"

namespace muster::process {

static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

void SharedText::set(std::string_view text) noexcept {
  std::uint64_t words[4] = {};
  std::memcpy(words, text.data(), std::min(text.size(), capacity));
  for (int i = 0; i < 4; ++i)
    words_[i].store(words[i], std::memory_order_relaxed);
}

std::string SharedText::get() const {
  std::uint64_t words[4];
  for (int i = 0; i < 4; ++i)
    words[i] = words_[i].load(std::memory_order_relaxed);
  char text[sizeof words];
  std::memcpy(text, words, sizeof words);
  return {text, ::strnlen(text, capacity)};
}

std::int64_t monotonic_ns() noexcept {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

StatusPage StatusPage::create(std::size_t ranks) {
  const Blob blob = Blob::create("muster-status");
  sys::checked("sizing the status page", [&] {
    return ::ftruncate(blob.fd(), static_cast<off_t>(ranks * sizeof(RankSlot)));
  });
  StatusPage page = map(blob);
  for (std::size_t i = 0; i < ranks; ++i)
    new (page.slots_.get() + i) RankSlot;
  return page;
}

StatusPage StatusPage::map(Blob blob) {
  StatusPage page;
  const std::size_t size = blob.size_bytes();
  void* address = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, blob.fd(), 0);
  if (address == MAP_FAILED)
    throw SystemError("mapping the status page", errno);
  page.slots_ = std::shared_ptr<RankSlot>(static_cast<RankSlot*>(address),
                                          [size](RankSlot* slots) { ::munmap(slots, size); });
  page.count_ = size / sizeof(RankSlot);
  page.blob_ = std::move(blob);
  return page;
}

std::string describe(const RankSlot& slot) {
  if (!slot.linked)
    return "";
  static constexpr const char* names[] = {"starting", "decoding arguments", "running", "returned"};
  std::string text = names[static_cast<int>(slot.phase.load())];
  if (const auto step = slot.step.load())
    text += fmt::format(", step {}", step);
  if (const auto since = slot.in_flight_since.load())
    text += fmt::format(", in {} {} ({} bytes) for {:.1f} s",
                        slot.operation.get(),
                        slot.collectives.load(),
                        slot.bytes.load(),
                        static_cast<double>(monotonic_ns() - since) / 1e9);
  if (const std::string note = slot.text.get(); !note.empty())
    text += fmt::format(", '{}'", note);
  return text;
}

} // namespace muster::process
