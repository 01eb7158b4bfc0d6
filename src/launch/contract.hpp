#pragma once

#include <muster/launch/task.hpp>

#include <string>
#include <vector>

namespace muster {

/// What all ranks of a job share in torchrun's contract.
struct JobShape {
  int size = 1;
  int attempt = 0;
  int max_restarts = 0;
  int threads = 1;
  bool threads_chosen = false; ///< by LaunchOptions, so it replaces an OMP_NUM_THREADS
  int port = 0;                ///< MASTER_PORT, reserved by the launcher
  std::string token;
};

/// The variables, NAME=value, that a rank of a job on this host gets: the spec's own, then
/// torchrun's contract, which wins.
std::vector<std::string> rank_environment(const RankSpec& spec, const JobShape& job);

} // namespace muster
