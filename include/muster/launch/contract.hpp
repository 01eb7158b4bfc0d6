#pragma once

#include <muster/launch/options.hpp>
#include <muster/launch/task.hpp>

#include <string>
#include <vector>

namespace muster {

/// What all ranks of an attempt on this host share in torchrun's contract.
struct JobShape {
  int local_size = 1;
  int attempt = 0;
  int threads = 1;             ///< OMP_NUM_THREADS
  bool threads_chosen = false; ///< by LaunchOptions, so it replaces one that is set
  int port = 0;                ///< MASTER_PORT
  std::string token;

  int first_rank(const Nodes& nodes) const noexcept { return nodes.rank * local_size; }
  int size(const Nodes& nodes) const noexcept { return nodes.count * local_size; }
};

/// Where node 0 is met.
std::string master_address(const Nodes& nodes);

/// The variables, NAME=value, that a rank gets: the spec's own, then torchrun's contract, which
/// wins. `error_file` is TORCHELASTIC_ERROR_FILE; empty: none.
std::vector<std::string> rank_environment(const RankSpec& spec,
                                          const LaunchOptions& options,
                                          const JobShape& job,
                                          const std::string& error_file);

} // namespace muster
