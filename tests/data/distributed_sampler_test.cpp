#include <muster/data/distributed_sampler.hpp>

#include <algorithm>
#include <set>

#include "catch.hpp"

using muster::DistributedSampler;
using muster::Remainder;
using muster::SamplerOptions;

namespace {

std::vector<std::vector<std::size_t>>
shards(std::size_t samples, int ranks, SamplerOptions options, std::uint64_t epoch = 0) {
  std::vector<std::vector<std::size_t>> all;
  for (int rank = 0; rank < ranks; ++rank) {
    DistributedSampler sampler(samples, rank, ranks, options);
    sampler.set_epoch(epoch);
    all.push_back(sampler.indices());
  }
  return all;
}

std::multiset<std::size_t> united(const std::vector<std::vector<std::size_t>>& shards) {
  std::multiset<std::size_t> all;
  for (const auto& shard : shards)
    all.insert(shard.begin(), shard.end());
  return all;
}

} // namespace

TEST_CASE("evaluation sees every sample exactly once", "[sampler]") {
  const std::size_t samples = GENERATE(0U, 1U, 7U, 12U, 100U);
  const int ranks = GENERATE(1, 2, 3, 8);
  const bool shuffle = GENERATE(false, true);
  const auto all =
      united(shards(samples, ranks, {.shuffle = shuffle, .remainder = Remainder::keep}));
  CHECK(all.size() == samples);
  CHECK(std::set<std::size_t>(all.begin(), all.end()).size() == samples);
}

TEST_CASE("training shards are equally long", "[sampler]") {
  const std::size_t samples = GENERATE(1U, 3U, 7U, 12U, 100U);
  const int ranks = GENERATE(1, 2, 3, 8);
  const auto count = static_cast<std::size_t>(ranks);
  const auto padded = shards(samples, ranks, {});
  const auto dropped = shards(samples, ranks, {.remainder = Remainder::drop});
  for (const auto& shard : padded)
    CHECK(shard.size() == (samples + count - 1) / count);
  for (const auto& shard : dropped)
    CHECK(shard.size() == samples / count);
  const auto all = united(padded);
  CHECK(std::set<std::size_t>(all.begin(), all.end()).size() == samples);
  const auto left = united(dropped);
  CHECK(std::set<std::size_t>(left.begin(), left.end()).size() == left.size());
}

TEST_CASE("each epoch has its order, and the same epoch the same", "[sampler]") {
  CHECK(shards(100, 2, {}, 0) == shards(100, 2, {}, 0));
  CHECK(shards(100, 2, {}, 0) != shards(100, 2, {}, 1));
  CHECK(shards(100, 2, {.seed = 1}, 0) != shards(100, 2, {.seed = 2}, 0));
  CHECK(shards(100, 2, {.seed = 1}, 0) != shards(100, 2, {.seed = 0}, 1));
  CHECK(shards(100, 2, {.shuffle = false}, 0) == shards(100, 2, {.shuffle = false}, 1));
  DistributedSampler sampler(100, 0, 2);
  const auto first = sampler.indices();
  sampler.set_epoch(1);
  sampler.set_epoch(0);
  CHECK(sampler.indices() == first);
}

TEST_CASE("the order does not depend on the number of ranks, nor on the platform", "[sampler]") {
  const auto one = shards(12, 1, {.seed = 42})[0];
  const auto three = shards(12, 3, {.seed = 42});
  for (std::size_t i = 0; i < 12; ++i)
    CHECK(three[i % 3][i / 3] == one[i]);
  CHECK(one == std::vector<std::size_t>{1, 8, 11, 3, 4, 6, 7, 10, 0, 9, 5, 2});
}

TEST_CASE("every sample comes first equally often", "[sampler]") {
  std::vector<int> counts(4);
  DistributedSampler sampler(4, 0, 1);
  for (std::uint64_t epoch = 0; epoch < 4000; ++epoch) {
    sampler.set_epoch(epoch);
    ++counts[sampler.indices()[0]];
  }
  for (const int count : counts)
    CHECK((count > 850 && count < 1150));
}

TEST_CASE("a rank that does not exist is refused", "[sampler]") {
  CHECK_THROWS_AS(DistributedSampler(10, 2, 2), muster::UsageError);
  CHECK_THROWS_AS(DistributedSampler(10, -1, 2), muster::UsageError);
  CHECK_THROWS_AS(DistributedSampler(10, 0, 0), muster::UsageError);
}
