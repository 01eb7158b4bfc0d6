#pragma once

#include <muster/launch/options.hpp>
#include <muster/launch/task.hpp>

#include <optional>
#include <string>
#include <vector>

// Which CPUs and which memory the ranks of a host get. Everything is computed in the launcher: a
// child only makes the two calls.
namespace muster::process {

/// What binding needs to know of a machine.
struct Topology {
  /// A hardware thread. Cores, caches and packages are named by their lowest CPU.
  struct Cpu {
    int cpu = 0;
    int core = 0;
    int cache = 0; ///< last level; the package where there is none
    int node = -1; ///< NUMA, as the kernel numbers it; -1: none that this process may use
    int package = 0;
  };
  std::vector<Cpu> cpus; ///< by number
};

/// This machine, as hwloc sees it. Throws SystemError.
Topology read_topology();

/// A machine from its description: an XML document of hwloc, or a synthetic one such as
/// "pack:2 numa:1 core:4 pu:2". Throws UsageError that quotes it.
Topology read_topology(const std::string& description);

/// Where one rank belongs. Both empty: wherever the launcher may be.
struct RankBinding {
  std::vector<int> cpus;
  std::vector<int> memory_nodes; ///< of these CPUs
};

/// The binding of each local rank, always within `allowed_cpus`. A rank goes to the node (or
/// package) of its GPU, where `gpu_nodes` knows it and some of its CPUs are allowed; the others
/// take the nodes with allowed CPUs in turn, in blocks: of 8 ranks on 2 nodes, 0-3 and 4-7. Within
/// a node, core complexes are taken in turn; `exclusive` divides whole cores and gives what is left
/// over to the lowest ranks. Throws UsageError if a rank would get nothing.
std::vector<RankBinding> plan_binding(Binding kind,
                                      const Topology& machine,
                                      const std::vector<int>& allowed_cpus,
                                      int local_ranks,
                                      const std::vector<std::optional<int>>& gpu_nodes);

/// Gives each rank its part of `plan`: CPUs and memory nodes if it has no CPUs of its own. Returns
/// a line that says so: "binding node: ranks 0-3 on CPUs 0-15, ranks 4-7 on CPUs 16-31".
std::string
apply_binding(std::vector<RankSpec>& ranks, Binding kind, const std::vector<RankBinding>& plan);

/// Plans and applies the binding of a host's ranks on this machine, from the affinity of the
/// calling thread and the ranks' GPUs. Nothing is read for Binding::none, which returns an empty
/// line.
std::string bind_ranks(std::vector<RankSpec>& ranks, Binding kind);

} // namespace muster::process
