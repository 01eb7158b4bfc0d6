#pragma once

#include <muster/launch/blob.hpp>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace muster {

/// One rank to start. A plain value; change it in an override of Launcher::spawn.
struct RankSpec {
  int rank = 0;
  int local_rank = 0;
  /// Added to the launcher's environment. RANK, WORLD_SIZE and the others of torchrun's contract
  /// are set by muster whatever is written here.
  std::map<std::string, std::string> env;
  /// Working directory; empty: the launcher's.
  std::string cwd;
  /// CPUs the rank may run on; empty: the launcher's.
  std::vector<int> cpus;
  /// NUMA nodes that its memory comes from while they have some; empty: the launcher's policy.
  std::vector<int> memory_nodes;
  /// What the rank reads from its standard input.
  std::string input = "/dev/null";
  /// Replaces the argv of the task's command, or of this program where it is executed again, for
  /// this rank. Empty: the same for all.
  std::vector<std::string> argv;
  /// Bytes by name, for the rank to read through World::extra.
  std::map<std::string, std::string> extra;
};

/// An address in a program or library that survives address randomization.
struct Symbol {
  std::string build_id; ///< of the module, as bytes
  std::uint64_t offset = 0;
  std::string module; ///< path, for messages only
};

/// A function and its encoded arguments.
struct Work {
  Symbol thunk;    ///< decodes, calls, encodes: detail::Thunk
  Symbol function; ///< the user's function
  Blob arguments;  ///< sealed
};

/// A program and its arguments. A name without a slash is looked up in PATH.
struct Command {
  std::vector<std::string> argv;
};

/// What a launcher starts: ranks that all do one piece of work, a function of this program or a
/// program.
struct Task {
  std::vector<RankSpec> ranks;
  std::variant<Work, Command> work;
};

} // namespace muster
