#include <muster/comm/process_group.hpp>

#include <atomic>
#include <cstdlib>
#include <map>

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/torch.h>

#include "catch.hpp"
#include "comm/backends.hpp"
#include "comm/rank_list.hpp"
#include "comm/ranks.hpp"

using Catch::Contains;
using muster::ProcessGroup;
using muster::ReduceOp;
using muster::World;

namespace {

template <class T>
std::vector<T> reduced(int size, ReduceOp op, T (*value)(int rank)) {
  return run_ranks(size, [&](World& world) {
    ProcessGroup group(world);
    const T result = group.all_reduce(value(world.rank), op);
    group.close();
    return result;
  });
}

at::Tensor reduced_tensor(ReduceOp op, const at::TensorOptions& options) {
  const auto results = run_ranks(3, [&](World& world) {
    ProcessGroup group(world);
    at::Tensor tensor = torch::tensor({1 + world.rank, 4 - world.rank}).to(options);
    group.all_reduce(tensor, op);
    group.close();
    return tensor;
  });
  REQUIRE(torch::equal(results[0], results[1]));
  REQUIRE(torch::equal(results[0], results[2]));
  return results[0];
}

template <class F>
std::string error_of_all(int size, F function) {
  const auto ended = try_ranks(size, [&](World& world) {
    ProcessGroup group(world);
    function(group);
    return 0;
  });
  for (const auto& each : ended)
    CHECK(each.error == ended[0].error);
  return ended[0].error;
}

} // namespace

TEST_CASE("numbers are reduced exactly, the same on all ranks", "[collectives]") {
  CHECK(reduced<int>(3, ReduceOp::sum, [](int rank) { return rank + 1; }) == std::vector{6, 6, 6});
  CHECK(reduced<int>(3, ReduceOp::product, [](int rank) { return rank + 2; })[1] == 24);
  CHECK(reduced<double>(4, ReduceOp::mean, [](int rank) { return rank + 0.5; })[3] == 2.0);
  CHECK(reduced<float>(2, ReduceOp::min, [](int rank) {
          return 1.0F - static_cast<float>(rank);
        }) == std::vector{0.0F, 0.0F});
  CHECK(reduced<std::uint64_t>(2, ReduceOp::max, [](int rank) {
          return ~std::uint64_t{0} - static_cast<std::uint64_t>(rank);
        })[1] == ~std::uint64_t{0});
  CHECK_FALSE(reduced<bool>(2, ReduceOp::min, [](int rank) { return rank == 0; })[0]);
}

TEST_CASE("a mean of integers and an overflow are errors, never cut off", "[collectives]") {
  CHECK_THAT(error_of_all(2, [](ProcessGroup& group) { group.all_reduce(1, ReduceOp::mean); }),
             Contains("mean of integers"));
  CHECK_THAT(error_of_all(2,
                          [](ProcessGroup& group) {
                            group.all_reduce(torch::ones({2}, torch::kLong), ReduceOp::mean);
                          }),
             Contains("mean of integers"));
  CHECK_THAT(error_of_all(2, [](ProcessGroup& group) { group.all_reduce(2'000'000'000); }),
             Contains("does not fit"));
  CHECK_THAT(error_of_all(2, [](ProcessGroup& group) { group.all_reduce(true); }),
             Contains("of bool"));
}

TEST_CASE("tensors of every dtype are reduced in place", "[collectives]") {
  for (const auto dtype : {torch::kFloat,
                           torch::kDouble,
                           torch::kHalf,
                           torch::kBFloat16,
                           torch::kLong,
                           torch::kInt,
                           torch::kShort,
                           torch::kByte,
                           torch::kChar}) {
    INFO(c10::toString(dtype));
    CHECK(torch::equal(reduced_tensor(ReduceOp::sum, dtype), torch::tensor({6, 9}).to(dtype)));
    CHECK(torch::equal(reduced_tensor(ReduceOp::max, dtype), torch::tensor({3, 4}).to(dtype)));
  }
  CHECK(torch::equal(reduced_tensor(ReduceOp::mean, torch::kDouble),
                     torch::tensor({2.0, 3.0}, torch::kDouble)));
  CHECK(
      torch::equal(reduced_tensor(ReduceOp::product, torch::kFloat), torch::tensor({6.0F, 24.0F})));
  CHECK(torch::equal(reduced_tensor(ReduceOp::mean, torch::kComplexFloat),
                     torch::tensor({2.0F, 3.0F}).to(torch::kComplexFloat)));
  CHECK(torch::equal(reduced_tensor(ReduceOp::max, torch::kBool), torch::tensor({true, true})));
}

TEST_CASE("a reduced tensor may be a leaf, a part of another, or empty", "[collectives]") {
  const auto results = run_ranks(2, [](World& world) {
    ProcessGroup group(world);
    at::Tensor whole = torch::full({4, 3}, world.rank + 1.0);
    group.all_reduce(whole.select(1, 1));
    at::Tensor leaf = torch::ones({2}).requires_grad_(true);
    group.all_reduce(leaf);
    group.all_reduce(torch::empty({0, 3}));
    group.close();
    return std::vector<at::Tensor>{whole, leaf.detach()};
  });
  CHECK(results[1][0][2][1].item<double>() == 3);
  CHECK(results[1][0][2][0].item<double>() == 2);
  CHECK(results[0][1][0].item<float>() == 2);
}

TEST_CASE("anything that travels is broadcast and gathered", "[collectives]") {
  using Text = std::map<std::string, std::vector<int>>;
  const auto results = run_ranks(3, [](World& world) {
    ProcessGroup group(world);
    const Text mine{{std::string(static_cast<std::size_t>(world.rank) * 1000, 'x'), {world.rank}}};
    const Text theirs = group.broadcast(mine, 2);
    const bool same =
        theirs.begin()->first.size() == 2000 && group.broadcast(std::string(), 1).empty();
    std::vector<std::size_t> lengths;
    for (const Text& each : group.all_gather(mine))
      lengths.push_back(each.begin()->first.size());
    at::Tensor tensor = torch::full({2, 2}, world.rank, torch::kShort);
    group.broadcast(tensor.t(), 1);
    const at::Tensor rows = group.all_gather(torch::tensor({world.rank * 1.5}));
    const auto tensors = group.all_gather(std::vector<at::Tensor>{tensor});
    group.barrier();
    group.close();
    return same && lengths == std::vector<std::size_t>{0, 1000, 2000} &&
           tensor.sum().item<int>() == 4 &&
           torch::equal(rows, torch::tensor({{0.0}, {1.5}, {3.0}})) && tensors.size() == 3;
  });
  CHECK(results == std::vector{true, true, true});
}

TEST_CASE("ranks that disagree all get the same error", "[collectives]") {
  CHECK_THAT(
      error_of_all(
          3,
          [](ProcessGroup& group) { group.all_reduce(torch::ones({group.rank() == 1 ? 3 : 2})); }),
      Contains("ranks 0 and 2: all_reduce (sum) of a Float tensor [2]; rank 1: all_reduce (sum) "
               "of a Float tensor [3]"));
  CHECK_THAT(error_of_all(2,
                          [](ProcessGroup& group) {
                            if (group.rank() == 0)
                              group.barrier();
                            else
                              group.all_reduce(1.0);
                          }),
             Contains("rank 0: barrier; rank 1: all_reduce (sum) of double"));
  CHECK_THAT(error_of_all(2,
                          [](ProcessGroup& group) {
                            group.all_gather(
                                torch::ones({1}, group.rank() == 0 ? torch::kInt : torch::kLong));
                          }),
             Contains("Int tensor"));
  CHECK_THAT(error_of_all(2, [](ProcessGroup& group) { group.broadcast(1, group.rank()); }),
             Contains("from 1"));
}

TEST_CASE("rank 0 goes first, and nobody hangs when a rank fails", "[collectives]") {
  std::atomic<int> done = 0;
  const auto seen = run_ranks(3, [&](World& world) {
    ProcessGroup group(world);
    const int before = group.rank_zero_first([&] { return done.fetch_add(1); });
    group.close();
    return before;
  });
  CHECK(seen[0] == 0);
  CHECK(done == 3);
  for (const int failing : {0, 2}) {
    const auto ended = try_ranks(3, [&](World& world) {
      ProcessGroup group(world);
      group.rank_zero_first([&] {
        if (world.rank == failing)
          throw std::runtime_error("the disk is full");
      });
      return 0;
    });
    for (int rank = 0; rank < 3; ++rank)
      CHECK(ended[static_cast<std::size_t>(rank)].error ==
            (rank == failing ? std::string("the disk is full")
                             : "rank_zero_first: rank " + std::to_string(failing) +
                                   " failed: the disk is full"));
  }
}

TEST_CASE("a rank that does not come is named", "[group]") {
  const auto ended = try_ranks(3, [](World& world) {
    world.timeout = std::chrono::milliseconds(300);
    if (world.rank != 1)
      ProcessGroup(world).close();
    return 0;
  });
  CHECK_THAT(ended[0].error, Contains("rank 0 waited 0.3 s for rank 1 to join the group 'main'"));
  CHECK_THAT(ended[2].error, Contains("rank 1"));
}

TEST_CASE("ranks that expect another number of ranks are named", "[group]") {
  const auto ended = try_ranks(2, [](World& world) {
    world.size += world.rank;
    ProcessGroup group(world);
    return 0;
  });
  for (const auto& each : ended)
    CHECK_THAT(each.error,
               Contains("2 ranks") && Contains("rank 1: muster") && Contains("3 ranks"));
}

TEST_CASE("groups come one after another and side by side in one world", "[group]") {
  const auto results = run_ranks(2, [](World& world) {
    int sum = 0;
    for (int i = 0; i < 5; ++i) {
      ProcessGroup group(world);
      sum += group.all_reduce(1);
      group.close();
    }
    ProcessGroup first(world);
    ProcessGroup second(world, at::kCPU, {.name = "other"});
    sum += first.all_reduce(1) + second.all_reduce(1);
    second.close();
    first.close();
    return sum;
  });
  CHECK(results == std::vector{14, 14});
}

TEST_CASE("a closed group says so", "[group]") {
  World world;
  ProcessGroup group(world);
  CHECK(group.all_reduce(3) == 3);
  CHECK(group.backend() == "gloo");
  group.close();
  group.close();
  CHECK_THROWS_WITH(group.barrier(), Contains("closed"));
}

TEST_CASE("the backend is the one that was asked for, or an error that lists what there is",
          "[backend]") {
  ::unsetenv("MUSTER_BACKEND");
  const auto all = muster::default_backends();
  const muster::Backends gloo{{"gloo", all.at("gloo")}};
  CHECK(muster::choose_backend("", at::kCPU, gloo) == "gloo");
  CHECK(muster::choose_backend("gloo", at::kCUDA, gloo) == "gloo");
  CHECK_THROWS_WITH(muster::choose_backend("mpi", at::kCPU, gloo),
                    Contains("no backend 'mpi'") && Contains("available: gloo"));
  CHECK_THROWS_WITH(muster::choose_backend("", at::Device(at::kCUDA, 1), gloo),
                    Contains("cuda:1") && Contains("nccl") && Contains("available: gloo"));
  ::setenv("MUSTER_BACKEND", "ucc", 1);
  CHECK_THROWS_WITH(muster::choose_backend("", at::kCPU, gloo), Contains("MUSTER_BACKEND"));
  CHECK(muster::choose_backend("gloo", at::kCPU, gloo) == "gloo");
  ::unsetenv("MUSTER_BACKEND");
}

TEST_CASE("users add backends by value", "[backend]") {
  const auto results = run_ranks(2, [](World& world) {
    int made = 0;
    muster::Backends backends = muster::default_backends();
    backends["mine"] = [&made, gloo = backends.at("gloo")](const muster::BackendRequest& request) {
      ++made;
      return gloo(request);
    };
    ProcessGroup group(world, at::kCPU, {.backend = "mine", .backends = backends});
    const int sum = group.all_reduce(1);
    group.close();
    return std::vector<int>{made, sum};
  });
  CHECK(results[1] == std::vector{1, 2});
}

TEST_CASE("Gloo's place follows the variable, the host and the way to the master", "[backend]") {
  World world;
  world.size = 2;
  CHECK(muster::comm::gloo_place(world, nullptr).address == "127.0.0.1");
  CHECK(muster::comm::gloo_place(world, "eth0,eth1").interfaces ==
        std::vector<std::string>{"eth0", "eth1"});
  CHECK_THROWS_WITH(muster::comm::gloo_place(world, "^lo"), Contains("^lo"));
  world.node_count = 2;
  world.master_addr = "127.0.0.3";
  world.master_port = 29500;
  CHECK(muster::comm::gloo_place(world, "").address == "127.0.0.1");
  CHECK(muster::comm::address_towards("no.such.host.invalid", 1).empty());
}

TEST_CASE("without a launcher's store the ranks meet at MASTER_ADDR", "[store]") {
  World lost;
  lost.size = 2;
  CHECK_THROWS_WITH(ProcessGroup(lost), Contains("MASTER_ADDR"));
  const auto results = run_ranks(2, [](World& world) {
    world.store = nullptr;
    world.master_addr = "127.0.0.1";
    world.master_port = 20000 + static_cast<int>(::getpid() % 10000);
    int sum = 0;
    for (int launch = 0; launch < 3; ++launch) {
      ProcessGroup group(world);
      sum += group.all_reduce(1);
      group.close();
    }
    return sum;
  });
  CHECK(results == std::vector{6, 6});
}

TEST_CASE("ranks are listed for people", "[rank_list]") {
  CHECK(muster::comm::rank_list({3}) == "rank 3");
  CHECK(muster::comm::rank_list({1, 2}) == "ranks 1 and 2");
  CHECK(muster::comm::rank_list({0, 1, 5}) == "ranks 0, 1 and 5");
  CHECK(muster::comm::rank_list({0, 1, 2, 3, 4, 5, 6, 7, 8, 9}) ==
        "ranks 0, 1, 2, 3, 4, 5, 6, 7 and 2 more");
}
