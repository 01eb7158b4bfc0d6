#include <muster/launch/error.hpp>

#include <numeric>

#include "catch.hpp"
#include "process/binding.hpp"

using muster::Binding;
using muster::RankSpec;
using muster::UsageError;
using muster::process::apply_binding;
using muster::process::bind_ranks;
using muster::process::plan_binding;
using muster::process::read_topology;
using muster::process::Topology;

namespace {

using Numbers = std::vector<int>;
using GpuNodes = std::vector<std::optional<int>>;
using PerRank = std::vector<Numbers>;

/// 32 CPUs: node n has 8n to 8n+7, a core two neighbours.
Topology two_packages() { return read_topology("pack:2 numa:2 core:4 pu:2"); }

/// The same cores, the second threads numbered after all first ones, as most servers do it.
Topology threads_apart() { return read_topology("pack:2 numa:2 core:4 pu:2(indexes=core)"); }

/// 32 CPUs: a node has 4 groups of 4 cores, each with a cache.
Topology complexes() { return read_topology("pack:1 numa:2 l3:4 core:4 pu:1"); }

/// 8 CPUs, all alike.
Topology one_node() { return read_topology("pack:1 numa:1 core:4 pu:2"); }

Numbers range(int first, int last) {
  Numbers all(static_cast<std::size_t>(last - first + 1));
  std::iota(all.begin(), all.end(), first);
  return all;
}

Numbers joined(Numbers a, const Numbers& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

/// The CPUs of each rank.
PerRank cpus_of(Binding kind,
                const Topology& machine,
                int ranks,
                const Numbers& allowed = range(0, 31),
                const GpuNodes& gpus = {}) {
  PerRank all;
  for (const auto& rank : plan_binding(kind, machine, allowed, ranks, gpus))
    all.push_back(rank.cpus);
  return all;
}

std::vector<RankSpec> specs(int count) {
  std::vector<RankSpec> ranks(static_cast<std::size_t>(count));
  for (int i = 0; i < count; ++i)
    ranks[static_cast<std::size_t>(i)].rank = ranks[static_cast<std::size_t>(i)].local_rank = i;
  return ranks;
}

} // namespace

TEST_CASE("a topology names a CPU's core, cache, node and package", "[binding]") {
  const Topology machine = two_packages();
  REQUIRE(machine.cpus.size() == 32);
  const auto& cpu = machine.cpus[27];
  CHECK(cpu.cpu == 27);
  CHECK(cpu.core == 26);
  CHECK(cpu.node == 3);
  CHECK(cpu.package == 16);
  CHECK(cpu.cache == 16); // it has none
  CHECK(complexes().cpus[27].cache == 24);
  CHECK(threads_apart().cpus[27].core == 11);
}

TEST_CASE("this machine has the CPUs of this process", "[binding]") {
  const Topology machine = read_topology();
  REQUIRE_FALSE(machine.cpus.empty());
  auto ranks = specs(2);
  CHECK_THAT(bind_ranks(ranks, Binding::socket), Catch::Contains("binding socket: rank"));
  CHECK_FALSE(ranks[1].cpus.empty());
}

TEST_CASE("an XML document is a topology, and anything else is refused", "[binding]") {
  const Topology machine = read_topology(R"(<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE topology SYSTEM "hwloc2.dtd">
<topology version="2.0">
 <object type="Machine" os_index="0" cpuset="0x3" complete_cpuset="0x3" allowed_cpuset="0x3"
   nodeset="0x1" complete_nodeset="0x1" allowed_nodeset="0x1" gp_index="1">
  <object type="NUMANode" os_index="0" cpuset="0x3" complete_cpuset="0x3" nodeset="0x1"
    complete_nodeset="0x1" gp_index="2" local_memory="1048576"/>
  <object type="Core" os_index="0" cpuset="0x3" complete_cpuset="0x3" nodeset="0x1"
    complete_nodeset="0x1" gp_index="3">
   <object type="PU" os_index="0" cpuset="0x1" complete_cpuset="0x1" nodeset="0x1"
     complete_nodeset="0x1" gp_index="4"/>
   <object type="PU" os_index="1" cpuset="0x2" complete_cpuset="0x2" nodeset="0x1"
     complete_nodeset="0x1" gp_index="5"/>
  </object>
 </object>
</topology>)");
  REQUIRE(machine.cpus.size() == 2);
  CHECK(machine.cpus[1].core == 0);
  CHECK(machine.cpus[1].node == 0);
  CHECK_THROWS_WITH(read_topology("a large one"), Catch::Contains("'a large one'"));
}

TEST_CASE("ranks take the nodes in blocks, and their memory there", "[binding]") {
  const auto plan = plan_binding(Binding::node, two_packages(), range(0, 31), 8, {});
  REQUIRE(plan.size() == 8);
  for (int rank = 0; rank < 8; ++rank) {
    const auto& own = plan[static_cast<std::size_t>(rank)];
    const int node = rank / 2;
    CHECK(own.cpus == range(8 * node, 8 * node + 7));
    CHECK(own.memory_nodes == Numbers{node});
  }
  CHECK(cpus_of(Binding::node, two_packages(), 1) == PerRank{range(0, 7)});
  CHECK(cpus_of(Binding::node, two_packages(), 2) == PerRank{range(0, 7), range(16, 23)});
}

TEST_CASE("threads of a core that are numbered far apart stay together", "[binding]") {
  const auto node = cpus_of(Binding::node, threads_apart(), 4);
  CHECK(node[1] == joined(range(4, 7), range(20, 23)));
  const auto exclusive = cpus_of(Binding::exclusive, threads_apart(), 8);
  CHECK(exclusive[0] == Numbers{0, 1, 16, 17});
  CHECK(exclusive[7] == Numbers{14, 15, 30, 31});
}

TEST_CASE("a rank goes to the node of its GPU", "[binding]") {
  const GpuNodes gpus = {3, 3, std::nullopt, 0};
  const auto node = cpus_of(Binding::node, two_packages(), 4, range(0, 31), gpus);
  CHECK(node[0] == range(24, 31));
  CHECK(node[1] == range(24, 31));
  CHECK(node[2] == range(16, 23)); // its turn
  CHECK(node[3] == range(0, 7));
  const auto socket = plan_binding(Binding::socket, two_packages(), range(0, 31), 4, gpus);
  CHECK(socket[0].cpus == range(16, 31));
  CHECK(socket[0].memory_nodes == Numbers{2, 3});
  CHECK(socket[3].cpus == range(0, 15));
}

TEST_CASE("a GPU's node that is unknown here, or without allowed CPUs, is passed over",
          "[binding]") {
  const auto node = cpus_of(Binding::node, two_packages(), 2, range(8, 31), {0, 77});
  CHECK(node[0] == range(8, 15));
  CHECK(node[1] == range(16, 23));
}

TEST_CASE("packages are taken in blocks", "[binding]") {
  const auto cpus = cpus_of(Binding::socket, two_packages(), 4);
  CHECK(cpus == PerRank{range(0, 15), range(0, 15), range(16, 31), range(16, 31)});
}

TEST_CASE("core complexes of a node are taken in turn", "[binding]") {
  const auto plan = plan_binding(Binding::core_complex, complexes(), range(0, 31), 12, {});
  const Numbers firsts = {0, 4, 8, 12, 0, 4, 16, 20, 24, 28, 16, 20};
  for (std::size_t rank = 0; rank < 12; ++rank) {
    CHECK(plan[rank].cpus == range(firsts[rank], firsts[rank] + 3));
    CHECK(plan[rank].memory_nodes == Numbers{firsts[rank] / 16});
  }
  const auto gpus = cpus_of(Binding::core_complex, complexes(), 2, range(0, 31), {1, 1});
  CHECK(gpus == PerRank{range(16, 19), range(20, 23)});
}

TEST_CASE("a node's cores are divided, the lowest ranks get what is left over", "[binding]") {
  const auto cpus = cpus_of(Binding::exclusive, two_packages(), 3, range(0, 31), {1, 1, 1});
  CHECK(cpus == PerRank{range(8, 11), range(12, 13), range(14, 15)});
  const auto spread = cpus_of(Binding::exclusive, complexes(), 5, range(0, 31));
  CHECK(spread[0] == range(0, 5));
  CHECK(spread[1] == range(6, 10));
  CHECK(spread[2] == range(11, 15));
  CHECK(spread[3] == range(16, 23));
}

TEST_CASE("more ranks than cores is an error with the numbers", "[binding]") {
  CHECK_THROWS_WITH(cpus_of(Binding::exclusive, one_node(), 5, range(0, 7)),
                    Catch::Contains("ranks 0-4 belong to NUMA node 0") &&
                        Catch::Contains("may use 4 cores"));
  CHECK_THROWS_WITH(cpus_of(Binding::exclusive, two_packages(), 3, {16, 17}, {2, 0, 2}),
                    Catch::Contains("ranks 0-2 belong to NUMA node 2") &&
                        Catch::Contains("may use 1 core;"));
}

TEST_CASE("nothing outside of the inherited affinity is given away", "[binding]") {
  const Numbers mask = {3, 4, 9, 30};
  CHECK(cpus_of(Binding::node, two_packages(), 3, mask) ==
        PerRank{Numbers{3, 4}, Numbers{9}, Numbers{30}});
  CHECK(cpus_of(Binding::socket, two_packages(), 2, mask) ==
        PerRank{Numbers{3, 4, 9}, Numbers{30}});
  CHECK(cpus_of(Binding::exclusive, two_packages(), 2, mask, {0, 0}) ==
        PerRank{Numbers{3}, Numbers{4}});
  CHECK(cpus_of(Binding::core_complex, complexes(), 4, {1, 5, 6, 20}) ==
        PerRank{Numbers{1}, Numbers{5, 6}, Numbers{20}, Numbers{20}});
  const auto plan = plan_binding(Binding::socket, two_packages(), mask, 2, {});
  CHECK(plan[0].memory_nodes == Numbers{0, 1});
  CHECK(plan[1].memory_nodes == Numbers{3});
}

TEST_CASE("a mask of which the machine has nothing names rank, kind and mask", "[binding]") {
  CHECK_THROWS_AS(cpus_of(Binding::node, one_node(), 2, {8, 9, 11}), UsageError);
  CHECK_THROWS_WITH(cpus_of(Binding::core_complex, one_node(), 2, {8, 9, 11}),
                    Catch::Contains("rank 0: binding core-complex") &&
                        Catch::Contains("CPUs 8-9,11") && Catch::Contains("has CPUs 0-7"));
}

TEST_CASE("on a machine of one node every kind works", "[binding]") {
  const Numbers all = range(0, 7);
  CHECK(cpus_of(Binding::node, one_node(), 2) == PerRank{all, all});
  CHECK(cpus_of(Binding::socket, one_node(), 2) == PerRank{all, all});
  CHECK(cpus_of(Binding::core_complex, one_node(), 2) == PerRank{all, all});
  CHECK(cpus_of(Binding::exclusive, one_node(), 2) == PerRank{range(0, 3), range(4, 7)});
  CHECK(cpus_of(Binding::none, one_node(), 2) == PerRank(2));
}

TEST_CASE("CPUs of no usable node are a node without memory", "[binding]") {
  Topology machine = one_node();
  for (auto& cpu : machine.cpus)
    cpu.node = cpu.cpu < 4 ? 0 : -1;
  const auto plan = plan_binding(Binding::node, machine, range(0, 7), 2, {-1, std::nullopt});
  CHECK(plan[0].cpus == range(4, 7));
  CHECK(plan[0].memory_nodes.empty());
}

TEST_CASE("ranks get what they do not have, and one line says so", "[binding]") {
  auto ranks = specs(5);
  ranks[1].cpus = {30};
  ranks[2].memory_nodes = {3};
  const auto plan = plan_binding(Binding::node, two_packages(), range(0, 17), 5, {});
  CHECK(apply_binding(ranks, Binding::node, plan) ==
        "binding node: rank 0 on CPUs 0-7, ranks 2-3 on CPUs 8-15, rank 4 on CPUs 16-17");
  CHECK(ranks[0].cpus == range(0, 7));
  CHECK(ranks[0].memory_nodes == Numbers{0});
  CHECK(ranks[1].cpus == Numbers{30});
  CHECK(ranks[1].memory_nodes.empty());
  CHECK(ranks[2].cpus == range(8, 15));
  CHECK(ranks[2].memory_nodes == Numbers{3});
  CHECK_THAT(apply_binding(ranks, Binding::node, plan), Catch::Contains("CPUs of its own"));
  const auto shared = plan_binding(Binding::core_complex, complexes(), range(0, 7), 3, {});
  ranks = specs(3);
  CHECK(apply_binding(ranks, Binding::core_complex, shared) ==
        "binding core-complex: ranks 0,2 on CPUs 0-3, rank 1 on CPUs 4-7");
}

TEST_CASE("without a binding nothing is done or said", "[binding]") {
  auto ranks = specs(2);
  CHECK(bind_ranks(ranks, Binding::none).empty());
  CHECK(ranks[0].cpus.empty());
  CHECK(ranks[0].memory_nodes.empty());
}
