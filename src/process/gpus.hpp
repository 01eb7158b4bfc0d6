#pragma once

#include <muster/cluster/environment.hpp>
#include <muster/launch/task.hpp>

#include <optional>
#include <string>
#include <vector>

// The NVIDIA GPUs of this machine, by the files of its driver and by CUDA_VISIBLE_DEVICES. CUDA is
// not even loaded, so that this process can still fork. `root` stands before /proc and /sys.
namespace muster::process {

/// How many GPUs a program with these variables has: those that CUDA_VISIBLE_DEVICES names, up to
/// the first that is not there; without that variable all of them.
int visible_gpus(const EnvSnapshot& environment, const std::string& root = "");

/// The NUMA node of each rank's GPU, or nullopt if it is not known. A rank's GPU is, of those it
/// sees, the one with the number of its local rank, or the only one in a list of its own
/// (RankSpec::env). Numbers are those of CUDA_DEVICE_ORDER=PCI_BUS_ID; CUDA's default order,
/// FASTEST_FIRST, may differ on a machine with GPUs of several kinds.
std::vector<std::optional<int>> gpu_numa_nodes(const std::vector<RankSpec>& ranks,
                                               const EnvSnapshot& environment,
                                               const std::string& root = "");

/// The CUDA_VISIBLE_DEVICES with which a rank sees its GPU only: its entry of the launcher's list;
/// without one, its local rank. Throws UsageError if the list is too short.
std::string gpu_for(int local_rank, const EnvSnapshot& environment);

} // namespace muster::process
