#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <string>

namespace muster {

class Store;

/// This process's place in a job. A plain value.
struct World {
  int rank = 0;
  int size = 1;
  int local_rank = 0;
  int local_size = 1;
  int node_rank = 0;
  int node_count = 1;
  int attempt = 0; ///< 0, or how often the job was restarted
  int threads = 0; ///< compute threads this rank should use; 0: not decided by a launcher

  /// Who made the ranks: "muster", "torchrun" or "local", with the evidence.
  std::string source = "local";
  /// Where rank 0 can be met when no muster launcher serves a store. Empty and 0 otherwise.
  std::string master_addr;
  int master_port = 0;
  /// Rank 0 must connect to a store at that address instead of serving it (torchrun's agent store).
  bool store_is_served = false;

  /// For collectives and store waits.
  std::chrono::milliseconds timeout = std::chrono::minutes(30);
  /// Named bytes from RankSpec::extra.
  std::map<std::string, std::string> extra;
  /// The launcher's key-value store; null where no muster launcher serves one.
  std::shared_ptr<Store> store;
};

} // namespace muster
