#include "binding.hpp"

#include <muster/launch/error.hpp>

#include <algorithm>
#include <cerrno>
#include <map>
#include <memory>
#include <set>

#include <hwloc.h>

#include <fmt/format.h>

#include "exec.hpp"
#include "gpus.hpp"

namespace muster::process {

namespace {

using Cpu = Topology::Cpu;
using Cpus = std::vector<Cpu>;

struct DestroyTopology {
  void operator()(hwloc_topology_t topology) const noexcept { hwloc_topology_destroy(topology); }
};
using HwlocTopology = std::unique_ptr<hwloc_topology, DestroyTopology>;

HwlocTopology new_topology() {
  hwloc_topology_t topology = nullptr;
  if (hwloc_topology_init(&topology) != 0)
    throw SystemError("preparing to read the machine's topology", errno);
  return HwlocTopology(topology);
}

int first_cpu(hwloc_obj_t object) { return hwloc_bitmap_first(object->cpuset); }

/// The node with the fewest CPUs, this one among them. Of several, such as fast memory beside the
/// ordinary one, hwloc names the ordinary one first.
int node_of(hwloc_topology_t topology, unsigned cpu) {
  hwloc_obj_t best = nullptr;
  for (hwloc_obj_t node = nullptr;
       (node = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_NUMANODE, node)) != nullptr;)
    if (hwloc_bitmap_isset(node->cpuset, cpu) != 0 &&
        (best == nullptr || hwloc_bitmap_weight(node->cpuset) < hwloc_bitmap_weight(best->cpuset)))
      best = node;
  return best ? static_cast<int>(best->os_index) : -1;
}

Cpu cpu_of(hwloc_topology_t topology, hwloc_obj_t unit) {
  const int number = static_cast<int>(unit->os_index);
  Cpu cpu{.cpu = number, .core = number, .node = node_of(topology, unit->os_index)};
  hwloc_obj_t cache = nullptr;
  for (hwloc_obj_t object = unit; object; object = object->parent) {
    if (object->type == HWLOC_OBJ_CORE)
      cpu.core = first_cpu(object);
    if (hwloc_obj_type_is_dcache(object->type) != 0)
      cache = object;
    if (object->type == HWLOC_OBJ_PACKAGE || object->type == HWLOC_OBJ_MACHINE) {
      cpu.package = first_cpu(object);
      break;
    }
  }
  cpu.cache = cache ? first_cpu(cache) : cpu.package;
  return cpu;
}

Topology load(HwlocTopology topology) {
  if (hwloc_topology_load(topology.get()) != 0)
    throw SystemError("reading the machine's topology", errno);
  Topology machine;
  for (hwloc_obj_t unit = nullptr;
       (unit = hwloc_get_next_obj_by_type(topology.get(), HWLOC_OBJ_PU, unit)) != nullptr;)
    machine.cpus.push_back(cpu_of(topology.get(), unit));
  std::sort(machine.cpus.begin(), machine.cpus.end(), [](const Cpu& a, const Cpu& b) {
    return a.cpu < b.cpu;
  });
  return machine;
}

std::vector<int> numbers(const Cpus& cpus) {
  std::vector<int> all;
  for (const Cpu& cpu : cpus)
    all.push_back(cpu.cpu);
  return all;
}

/// "0-3,8", of numbers in order.
std::string ranges(const std::vector<int>& numbers) {
  std::string text;
  for (std::size_t first = 0, last = 0; first < numbers.size(); first = ++last) {
    while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1)
      ++last;
    text += fmt::format("{}{}", first == 0 ? "" : ",", numbers[first]);
    if (last > first)
      text += fmt::format("-{}", numbers[last]);
  }
  return text.empty() ? "none" : text;
}

/// "rank 3" or "CPUs 0-3,8".
std::string named(const char* what, const std::vector<int>& numbers) {
  return fmt::format("{}{} {}", what, numbers.size() == 1 ? "" : "s", ranges(numbers));
}

std::map<int, Cpus> grouped(const Cpus& cpus, int Cpu::*by) {
  std::map<int, Cpus> groups;
  for (const Cpu& cpu : cpus)
    groups[cpu.*by].push_back(cpu);
  return groups;
}

Cpus usable(Binding kind, const Topology& machine, const std::vector<int>& allowed) {
  Cpus cpus;
  for (const Cpu& cpu : machine.cpus)
    if (std::find(allowed.begin(), allowed.end(), cpu.cpu) != allowed.end())
      cpus.push_back(cpu);
  if (cpus.empty())
    throw UsageError(fmt::format(
        "rank 0: binding {} leaves it no CPU: this process may run on {}, and the machine has {}; "
        "widen the affinity, or use binding none",
        to_string(kind),
        named("CPU", allowed),
        named("CPU", numbers(machine.cpus))));
  return cpus;
}

/// The node or package in which a node's usable CPUs lie; nullopt if there are none, or several.
std::optional<int> domain_of_node(const Cpus& cpus, std::optional<int> node, int Cpu::*domain) {
  std::set<int> found;
  for (const Cpu& cpu : cpus)
    if (cpu.node == node)
      found.insert(cpu.*domain);
  return found.size() == 1 ? std::optional(*found.begin()) : std::nullopt;
}

/// The ranks of each node or package.
std::map<int, std::vector<int>> place_ranks(const Cpus& cpus,
                                            int Cpu::*domain,
                                            int local_ranks,
                                            const std::vector<std::optional<int>>& gpu_nodes) {
  std::vector<int> in_turn;
  for (const auto& [name, members] : grouped(cpus, domain))
    in_turn.push_back(name);
  std::map<int, std::vector<int>> places;
  const auto count = static_cast<std::size_t>(local_ranks);
  for (std::size_t rank = 0; rank < count; ++rank) {
    const auto gpu = rank < gpu_nodes.size() ? gpu_nodes[rank] : std::nullopt;
    const int turn = in_turn[rank * in_turn.size() / count];
    places[domain_of_node(cpus, gpu, domain).value_or(turn)].push_back(static_cast<int>(rank));
  }
  return places;
}

std::vector<Cpus> core_complexes(const Cpus& node) {
  std::vector<Cpus> parts;
  for (auto& [name, cpus] : grouped(node, &Cpu::cache))
    parts.push_back(cpus);
  return parts;
}

/// A node's cores, dealt in runs; hardware threads of a core stay together.
std::vector<Cpus> divide_cores(const Cpus& node, const std::vector<int>& ranks) {
  const auto cores = grouped(node, &Cpu::core);
  if (cores.size() < ranks.size())
    throw UsageError(fmt::format(
        "binding exclusive: {} belong to NUMA node {}, where this process may use {}; start fewer "
        "ranks, or use binding node",
        named("rank", ranks),
        node.front().node,
        cores.size() == 1 ? "1 core" : fmt::format("{} cores", cores.size())));
  std::vector<Cpus> parts(ranks.size());
  auto core = cores.begin();
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const std::size_t extra = i < cores.size() % parts.size() ? 1 : 0;
    for (std::size_t left = cores.size() / parts.size() + extra; left > 0; --left, ++core)
      parts[i].insert(parts[i].end(), core->second.begin(), core->second.end());
  }
  return parts;
}

/// What the ranks of a node or package take in turn.
std::vector<Cpus> divide(Binding kind, const Cpus& domain, const std::vector<int>& ranks) {
  if (kind == Binding::core_complex)
    return core_complexes(domain);
  if (kind == Binding::exclusive)
    return divide_cores(domain, ranks);
  return {domain};
}

RankBinding binding_to(const Cpus& cpus) {
  RankBinding binding;
  binding.cpus = numbers(cpus);
  std::sort(binding.cpus.begin(), binding.cpus.end());
  for (const auto& [node, members] : grouped(cpus, &Cpu::node))
    if (node >= 0)
      binding.memory_nodes.push_back(node);
  return binding;
}

} // namespace

Topology read_topology() {
  HwlocTopology topology = new_topology();
  // Some of hwloc's ways to look at a machine move the calling thread from CPU to CPU.
  hwloc_topology_set_flags(topology.get(), HWLOC_TOPOLOGY_FLAG_DONT_CHANGE_BINDING);
  return load(std::move(topology));
}

Topology read_topology(const std::string& description) {
  HwlocTopology topology = new_topology();
  const int size = static_cast<int>(description.size()) + 1;
  const int result = description.starts_with("<")
                         ? hwloc_topology_set_xmlbuffer(topology.get(), description.c_str(), size)
                         : hwloc_topology_set_synthetic(topology.get(), description.c_str());
  if (result != 0)
    throw UsageError(fmt::format("the topology '{}' is neither an XML document of hwloc nor a "
                                 "synthetic description such as 'pack:2 numa:1 core:4 pu:2'",
                                 description));
  return load(std::move(topology));
}

std::vector<RankBinding> plan_binding(Binding kind,
                                      const Topology& machine,
                                      const std::vector<int>& allowed_cpus,
                                      int local_ranks,
                                      const std::vector<std::optional<int>>& gpu_nodes) {
  std::vector<RankBinding> plan(static_cast<std::size_t>(local_ranks));
  if (kind == Binding::none)
    return plan;
  const auto domain = kind == Binding::socket ? &Cpu::package : &Cpu::node;
  const Cpus cpus = usable(kind, machine, allowed_cpus);
  const auto domains = grouped(cpus, domain);
  for (const auto& [name, ranks] : place_ranks(cpus, domain, local_ranks, gpu_nodes)) {
    const auto parts = divide(kind, domains.at(name), ranks);
    for (std::size_t i = 0; i < ranks.size(); ++i)
      plan[static_cast<std::size_t>(ranks[i])] = binding_to(parts[i % parts.size()]);
  }
  return plan;
}

std::string
apply_binding(std::vector<RankSpec>& ranks, Binding kind, const std::vector<RankBinding>& plan) {
  std::vector<std::pair<std::vector<int>, std::vector<int>>> said; // CPUs, and who has them
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    RankSpec& rank = ranks[i];
    if (!rank.cpus.empty() || plan[i].cpus.empty())
      continue;
    rank.cpus = plan[i].cpus;
    if (rank.memory_nodes.empty())
      rank.memory_nodes = plan[i].memory_nodes;
    const auto same = std::find_if(
        said.begin(), said.end(), [&](const auto& entry) { return entry.first == rank.cpus; });
    if (same != said.end())
      same->second.push_back(rank.rank);
    else
      said.push_back({rank.cpus, {rank.rank}});
  }
  std::string text;
  for (const auto& [cpus, who] : said)
    text +=
        fmt::format("{}{} on {}", text.empty() ? "" : ", ", named("rank", who), named("CPU", cpus));
  return fmt::format(
      "binding {}: {}", to_string(kind), text.empty() ? "every rank has CPUs of its own" : text);
}

std::string bind_ranks(std::vector<RankSpec>& ranks, Binding kind) {
  if (kind == Binding::none)
    return {};
  const auto gpu_nodes = gpu_numa_nodes(ranks, EnvSnapshot::current());
  const auto plan = plan_binding(
      kind, read_topology(), allowed_cpus(), static_cast<int>(ranks.size()), gpu_nodes);
  return apply_binding(ranks, kind, plan);
}

} // namespace muster::process
