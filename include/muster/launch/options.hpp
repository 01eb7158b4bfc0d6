#pragma once

#include <muster/launch/report.hpp>

#include <chrono>
#include <functional>
#include <optional>
#include <stop_token>

namespace muster {

/// How rank processes come into being.
enum class StartMethod {
  spawn,      ///< this program is executed again
  fork,       ///< this process forks; only while it has one thread and has not used CUDA
  forkserver, ///< a copy of this process, made by `init`, forks: ranks are up in milliseconds
};

/// "spawn", "fork" or "forkserver".
const char* to_string(StartMethod method) noexcept;

/// The reverse of to_string. Throws UsageError that lists the three.
StartMethod start_method_from(const std::string& name);

/// Prints one line about the first failed rank on stderr. The default of LaunchOptions::on_failure.
void print_failure(const RankReport& first);

/// How a job runs. Every member has a default; use it as `{.grace = 3s}`.
struct LaunchOptions {
  /// Between TERM and KILL when ranks are stopped. Ranks that end on TERM do not cost it.
  std::chrono::milliseconds grace = std::chrono::seconds(10);
  /// Every rank's function must have been entered by then.
  std::chrono::milliseconds start_timeout = std::chrono::minutes(5);
  /// The whole job must have ended by then. No limit by default.
  std::optional<std::chrono::milliseconds> timeout = {};
  /// Collectives, and waits in the store, fail after this time.
  std::chrono::milliseconds group_timeout = std::chrono::minutes(30);
  /// Stops the job like SIGTERM would.
  std::stop_token stop = {};
  /// How often the job is started again after a failure of ranks that had been running.
  int max_restarts = 0;
  /// Threads per rank (OMP_NUM_THREADS). Unset: what OMP_NUM_THREADS says, else usable CPUs
  /// divided by local ranks, at least 1.
  std::optional<int> threads = {};
  /// Called in the launching thread when the first failure is known, before ranks are stopped.
  std::function<void(const RankReport&)> on_failure = print_failure;
  /// INT, TERM, HUP and QUIT stop the job while `launch` runs, where their disposition is the
  /// default one; it is put back afterwards.
  bool handle_signals = true;
};

} // namespace muster
