#pragma once

#include <muster/launch/error.hpp>

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

namespace muster {

/// What happens where a data set does not divide into equal shards.
enum class Remainder {
  pad,  ///< equal shards: some samples come twice in an epoch
  drop, ///< equal shards: up to size - 1 samples are left out of an epoch
  keep, ///< every sample exactly once: some shards have one more. For evaluation; training with it
        ///< runs into a rank that takes a step which others do not.
};

struct SamplerOptions {
  bool shuffle = true;
  std::uint64_t seed = 0; ///< the same on all ranks
  Remainder remainder = Remainder::pad;
};

/// Which samples of a data set are a rank's. The shards of all ranks together are the data set, in
/// an order that depends on seed and epoch alone: not on the platform, nor on the number of ranks.
class DistributedSampler {
public:
  /// The shard of `rank` out of `size` ranks of `samples` samples, for epoch 0. Throws UsageError.
  DistributedSampler(std::size_t samples, int rank, int size, SamplerOptions options = {})
      : samples_(samples),
        rank_(static_cast<std::size_t>(rank)),
        size_(static_cast<std::size_t>(size)),
        options_(options) {
    if (size < 1 || rank < 0 || rank >= size)
      throw UsageError("DistributedSampler: there is no rank " + std::to_string(rank) + " of " +
                       std::to_string(size));
    set_epoch(0);
  }

  /// To be called before each epoch, with the same number on all ranks.
  void set_epoch(std::uint64_t epoch) {
    const std::vector<std::size_t> order = permutation(epoch);
    indices_.clear();
    const std::size_t end = total();
    for (std::size_t i = rank_; i < end; i += size_)
      indices_.push_back(order[i % samples_]);
  }

  /// This rank's samples of the epoch, in the order in which to take them.
  const std::vector<std::size_t>& indices() const noexcept { return indices_; }
  std::size_t size() const noexcept { return indices_.size(); }

private:
  /// Samples over all ranks.
  std::size_t total() const {
    if (options_.remainder == Remainder::keep)
      return samples_;
    const std::size_t down = samples_ / size_ * size_;
    return options_.remainder == Remainder::drop || down == samples_ ? down : down + size_;
  }

  /// splitmix64 (Steele, Lea, Flood 2014): standard distributions differ between libraries.
  static std::uint64_t mixed(std::uint64_t x) noexcept {
    x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9U;
    x = (x ^ (x >> 27U)) * 0x94d049bb133111ebU;
    return x ^ (x >> 31U);
  }

  std::vector<std::size_t> permutation(std::uint64_t epoch) const {
    std::vector<std::size_t> order(samples_);
    std::iota(order.begin(), order.end(), std::size_t{0});
    if (!options_.shuffle)
      return order;
    std::uint64_t state = mixed(mixed(options_.seed + golden) + epoch + golden);
    for (std::size_t i = samples_; i > 1; --i) {
      state += golden;
      std::swap(order[i - 1], order[below(i, state)]);
    }
    return order;
  }

  /// A number below `bound`; its bias is below 2^-31 for data sets of up to 2^33 samples.
  static std::size_t below(std::size_t bound, std::uint64_t state) noexcept {
    return static_cast<std::size_t>(mixed(state) % bound);
  }

  static constexpr std::uint64_t golden = 0x9e3779b97f4a7c15U;

  std::size_t samples_;
  std::size_t rank_;
  std::size_t size_;
  SamplerOptions options_;
  std::vector<std::size_t> indices_;
};

} // namespace muster
