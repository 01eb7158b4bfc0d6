#pragma once

#include <muster/launch/launcher.hpp>

namespace muster {

/// Runs a program per rank: any command, or this program again with its own arguments. Then a rank
/// runs `main` to the same `launch` call, where it becomes that rank: it does the launcher's work
/// with the launcher's arguments, and ends. The launching process is the supervisor, never a rank.
///
/// One launch of this program again per process, since ranks could not tell two apart: a second is
/// a UsageError that names SpawnLauncher.
class SubprocessLauncher : public Launcher {
public:
  /// Throws UsageError for a start method other than spawn: programs are always executed.
  explicit SubprocessLauncher(StartMethod start_method = StartMethod::spawn,
                              std::optional<int> nprocs = std::nullopt,
                              LaunchOptions options = {});

  /// Runs `command` in every rank until all have ended. Throws UsageError, SpawnFailure,
  /// RankFailure, Timeout or Interrupted.
  void execute(Command command) { start(std::move(command)); }

  JobReport spawn(Task task) override;
};

} // namespace muster
