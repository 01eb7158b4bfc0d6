#pragma once

#include <muster/comm/world.hpp>

#include <chrono>
#include <exception>
#include <optional>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include "comm/memory_store.hpp"

/// A world of `size` ranks that are threads of this process, seen by `rank`.
inline muster::World thread_world(std::shared_ptr<muster::Store> store, int rank, int size) {
  muster::World world;
  world.rank = world.local_rank = rank;
  world.size = world.local_size = size;
  world.threads = 1;
  world.source = "threads";
  world.timeout = std::chrono::seconds(20);
  world.store = std::move(store);
  return world;
}

/// What became of a rank: the value, or the text of its exception.
template <class R>
struct Ended {
  std::optional<R> value;
  std::string error;
};

/// Runs `function(World&)` as `size` ranks. Nothing is asserted in the threads: Catch2 forbids it.
template <class F>
auto try_ranks(int size, F function) {
  using R = std::invoke_result_t<F, muster::World&>;
  std::vector<Ended<R>> ended(static_cast<std::size_t>(size));
  const auto store = std::make_shared<MemoryStore>();
  {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < size; ++rank)
      threads.emplace_back([&, rank] {
        muster::World world = thread_world(store, rank, size);
        auto& mine = ended[static_cast<std::size_t>(rank)];
        try {
          mine.value.emplace(function(world));
        } catch (const std::exception& error) {
          mine.error = error.what();
        }
      });
  }
  return ended;
}

/// The same where no rank may fail.
template <class F>
auto run_ranks(int size, F function) {
  std::vector<std::invoke_result_t<F, muster::World&>> values;
  for (auto& each : try_ranks(size, function)) {
    if (!each.value)
      throw std::runtime_error("a rank failed: " + each.error);
    values.push_back(std::move(*each.value));
  }
  return values;
}
