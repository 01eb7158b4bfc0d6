#include "comm/meeting.hpp"

#include <muster/launch/error.hpp>
#include <muster/version.hpp>

#include <algorithm>
#include <chrono>

#include <fmt/format.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/version.h>

#include "comm/rank_list.hpp"

namespace muster::comm {

namespace {

using Millis = std::chrono::milliseconds;

void put(c10d::Store& store, const std::string& key, const std::string& text) {
  store.set(key, std::vector<std::uint8_t>(text.begin(), text.end()));
}

std::string take(c10d::Store& store, const std::string& key) {
  const auto bytes = store.get(key);
  return {bytes.begin(), bytes.end()};
}

std::string roll_key(int rank) { return fmt::format("roll/{}", rank); }

std::vector<int> missing_ranks(c10d::Store& store, int size) {
  std::vector<int> missing;
  for (int rank = 0; rank < size; ++rank)
    if (!store.check({roll_key(rank)}))
      missing.push_back(rank);
  return missing;
}

/// Waits for `keys`; when that fails, says which ranks did not come.
void wait_for_ranks(c10d::Store& store,
                    const std::vector<std::string>& keys,
                    const World& world,
                    const std::string& name) {
  try {
    store.wait(keys, world.timeout);
  } catch (const RendezvousError&) {
    throw;
  } catch (const std::exception& error) {
    const std::vector<int> missing = missing_ranks(store, world.size);
    if (missing.empty())
      throw;
    throw Timeout(fmt::format("rank {} waited {:.1f} s for {} to join the group '{}'",
                              world.rank,
                              std::chrono::duration<double>(world.timeout).count(),
                              rank_list(missing),
                              name));
  }
}

/// Rank 0's verdict: empty if all ranks are alike.
std::string compare_roll(c10d::Store& store, const std::vector<std::string>& keys) {
  std::vector<std::string> lines;
  for (const auto& bytes : store.multiGet(keys))
    lines.emplace_back(bytes.begin(), bytes.end());
  if (std::all_of(lines.begin(), lines.end(), [&](auto& line) { return line == lines.front(); }))
    return {};
  return "the ranks of this job do not run the same: " + who_said_what(lines);
}

} // namespace

c10::intrusive_ptr<c10d::Store> group_store(const c10::intrusive_ptr<c10d::Store>& store,
                                            const World& world,
                                            const std::string& name) {
  const std::string prefix = fmt::format("muster/{}/{}", world.attempt, name);
  const std::int64_t number = store->add(fmt::format("{}/made/{}", prefix, world.rank), 1);
  return c10::make_intrusive<c10d::PrefixStore>(fmt::format("{}/{}", prefix, number), store);
}

void call_the_roll(c10d::Store& store, const World& world, const std::string& name) {
  put(store,
      roll_key(world.rank),
      fmt::format("muster {}, libtorch {}, {} ranks", version(), TORCH_VERSION, world.size));
  if (world.rank == 0) {
    std::vector<std::string> keys;
    for (int rank = 0; rank < world.size; ++rank)
      keys.push_back(roll_key(rank));
    wait_for_ranks(store, keys, world, name);
    put(store, "verdict", compare_roll(store, keys));
  }
  wait_for_ranks(store, {"verdict"}, world, name);
  const std::string verdict = take(store, "verdict");
  if (!verdict.empty())
    throw RendezvousError(verdict);
}

void part(c10d::Store& store, const World& world) noexcept {
  constexpr Millis last_words = std::chrono::seconds(5); // the others only have to say goodbye
  try {
    if (store.add("done", 1) == world.size)
      put(store, "all done", "");
    store.wait({"all done"}, world.timeout);
    if (world.store)
      return; // a launcher serves it, and outlives all ranks
    if (store.add("gone", 1) == world.size)
      put(store, "all gone", "");
    if (world.rank == 0)
      store.wait({"all gone"}, std::min(last_words, world.timeout));
  } catch (const std::exception&) { // NOLINT: the group ends anyhow
  }
}

} // namespace muster::comm
