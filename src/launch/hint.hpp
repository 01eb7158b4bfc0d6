#pragma once

#include <muster/launch/report.hpp>

#include <cstdint>
#include <string>

namespace muster::process {

/// "pid 4242 (train)" for the process that listens on TCP port `port`, or else uses it; empty if
/// that is unknown, such as for another user's process.
std::string holder_of_port(int port);

/// What a hint may rest on, beside the rank's report. What is not known stays as it is here.
struct HintFacts {
  bool oom_killed = false;       ///< OomWatch::killed_since
  bool killed_by_us = false;     ///< the launcher sent the signal
  std::string memory_limit = {}; ///< OomWatch::limit
  std::string core_pattern = {}; ///< /proc/sys/kernel/core_pattern
  bool core_uses_pid = false;    ///< /proc/sys/kernel/core_uses_pid
  std::string program = {};      ///< path of what the rank runs
  std::string cwd = {};          ///< of the rank
  std::uint64_t shm_bytes = 0;
  std::uint64_t shm_free_bytes = 0;
  std::string (*holder_of_port)(int port) = process::holder_of_port;
};

/// The facts that are the same for all ranks: core_pattern, core_uses_pid, /dev/shm.
HintFacts facts_of_this_host();

/// The likely cause of a rank's failure, to be read behind its exit status; empty where the facts
/// support none.
std::string hint_for(const RankReport& rank, const HintFacts& facts);

} // namespace muster::process
