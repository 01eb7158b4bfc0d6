#pragma once

#include <muster/launch/options.hpp>
#include <muster/launch/task.hpp>

#include <string>
#include <vector>

#include "channel.hpp"
#include "exec.hpp"
#include "fd.hpp"
#include "protocol.hpp"
#include "status_page.hpp"

namespace muster::process {

/// A rank's process, as its launcher holds it.
struct Child {
  pid_t pid = -1;
  Fd pidfd;
  Fd control;
  ino_t channel = 0; // of the rank's end, to recognize what else holds it
  Blob result;       // none of a program
};

/// All that start_ranks needs.
struct BirthPlan {
  StartMethod method;
  const Task& task;
  const JobPart& job;
  /// NAME=value, what each rank adds to the launcher's environment.
  const std::vector<std::vector<std::string>>& environments;
  /// What each rank executes, if ranks are executed.
  const std::vector<ExecTarget>& targets;
  /// What a rank's input, output and errors are connected to; -1: what the spec says, the
  /// launcher's own.
  const std::vector<StandardFds>& streams;
  const StatusPage& page;
  const std::string& token;
  /// The launcher's own descriptors, which a forked rank closes.
  std::vector<int> launcher_fds;
};

/// Starts all ranks, or none: when one cannot be started those before it are killed and reaped.
/// Throws UsageError or SpawnFailure.
std::vector<Child> start_ranks(const BirthPlan& plan);

/// The state that a rank from the fork server takes over.
ProcessState process_state();

} // namespace muster::process
