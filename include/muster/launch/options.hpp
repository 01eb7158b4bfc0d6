#pragma once

#include <muster/launch/logs.hpp>
#include <muster/launch/rank_set.hpp>
#include <muster/launch/report.hpp>

#include <chrono>
#include <csignal>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

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

/// How ranks are bound to CPUs, by local rank. Memory comes from the NUMA nodes of those CPUs.
enum class Binding {
  none,         ///< as the launcher itself
  node,         ///< a NUMA node's CPUs: the node of the rank's GPU, else nodes in turn
  socket,       ///< a package's CPUs, chosen likewise
  core_complex, ///< the CPUs that share a last-level cache, in turn
  exclusive,    ///< a node's cores, divided among its ranks
};

/// "none", "node", "socket", "core-complex" or "exclusive".
const char* to_string(Binding binding) noexcept;

/// The reverse of to_string. Throws UsageError that lists the five.
Binding binding_from(const std::string& name);

/// How many ranks "4", "cpu", "gpu" or "auto" are on this host: that number; the CPUs that may
/// be used (affinity and cgroup quota); the GPUs that are visible; the GPUs, or without any the
/// CPUs. Throws UsageError that quotes `text`.
int nprocs_from(const std::string& text);

/// This host's place among several that do one job, by torchrun's static contract. Ranks are
/// numbered node by node.
struct Nodes {
  int count = 1;
  int rank = 0;                    ///< of this node, from 0
  std::string master_address = {}; ///< of node 0; empty: 127.0.0.1
  int master_port = 0;             ///< 0: one that the kernel chooses; needed for several nodes
};

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
  /// CPUs per rank; never more than the launcher may use.
  Binding binding = Binding::none;
  /// What becomes of the ranks' output. Unset: they write where the launcher writes.
  std::optional<LogOptions> logs = {};
  /// Local ranks that read a copy of the launcher's standard input; the others read what
  /// RankSpec::input says. The slowest reader sets the pace.
  RankSet stdin_ranks = {};
  /// A program that does not call `launch` counts as started, and may be restarted, once it has
  /// lived this long.
  std::chrono::milliseconds ready_after = std::chrono::seconds(5);
  /// Ends the job when no rank has made progress for so long. No limit by default. What counts:
  /// steps, collectives, phases and muster::progress.
  std::optional<std::chrono::milliseconds> hang_timeout = {};
  /// What JobReport::exit_code says after a failure.
  ExitCodeRule exit_code = ExitCodeRule::first;
  Nodes nodes = {};
  /// ROLE_NAME of the ranks.
  std::string role = "default";
  /// TORCHELASTIC_RUN_ID of the ranks; empty: a random one.
  std::string run_id = {};
  /// Every rank sees LOCAL_RANK=0 and one GPU, its own, in CUDA_VISIBLE_DEVICES.
  bool virtual_local_rank = false;
  /// Called in the launching thread when the first failure is known, before ranks are stopped.
  std::function<void(const RankReport&)> on_failure = print_failure;
  /// Called in the launching thread with a line on what is worth knowing: threads, binding,
  /// restarts.
  std::function<void(const std::string&)> on_note = {};
  /// These stop the job while `launch` runs, and `forward` are passed on to the ranks, where their
  /// disposition is the default one; it is put back afterwards.
  std::vector<int> stop_signals = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
  std::vector<int> forward = {SIGUSR1, SIGUSR2};
  /// For a program that does nothing but launch, such as process 1 of a container: reaps orphans
  /// that are not its ranks, and stops and continues ranks together with itself (Ctrl-Z).
  bool owns_process = false;
};

} // namespace muster
