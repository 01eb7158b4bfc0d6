#pragma once

#include <muster/launch/entry.hpp>
#include <muster/launch/error.hpp>
#include <muster/launch/options.hpp>
#include <muster/launch/task.hpp>

#include <optional>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace muster {

/// Says how ranks are born. Subclass one of the concrete launchers and override `spawn` to give
/// ranks more (environment, CPUs, named bytes), or this class for another way to make them.
///
/// Every function blocks its caller and may be called from any thread, one call at a time for an
/// object; several launchers may run at once.
class Launcher {
public:
  /// `nprocs`: the ranks this launcher makes on this host; unset: what the environment says,
  /// else 1. Throws UsageError for numbers below 1 or above 4096.
  Launcher(StartMethod start_method, std::optional<int> nprocs, LaunchOptions options = {});
  virtual ~Launcher() = default;

  StartMethod start_method() const noexcept { return start_method_; }
  std::optional<int> nprocs() const noexcept { return nprocs_; }
  const LaunchOptions& options() const noexcept { return options_; }

  /// A task with a RankSpec for every rank this launcher would start, and no work yet.
  Task plan() const;

  /// Starts the task's ranks and blocks until all have ended. Throws only when nothing is left
  /// running: UsageError, SpawnFailure. All later failures are in the report.
  virtual JobReport spawn(Task task) = 0;

  /// Runs `function(World&, arguments...)` in every rank and returns their results in rank order
  /// (nothing for void). In a world that others created (torchrun), runs it here and returns this
  /// process's result. Throws UsageError, SpawnFailure, RankFailure, Timeout or Interrupted.
  template <class F, class... A>
  auto run(F function, const A&... arguments) {
    return run_function(detail::as_function(function), arguments...);
  }

  /// Starts `work`, or does it here in a world that others created. Throws if it did not succeed.
  void launch(Work work);

  /// How the last launch of this object went.
  const JobReport& last_report() const noexcept { return last_report_; }

  /// The results of the last launch, one for each rank.
  template <class R>
  std::vector<R> results() const {
    std::vector<R> all;
    all.reserve(last_report_.ranks.size());
    for (const RankReport& rank : last_report_.ranks)
      all.push_back(decode<R>(rank.result));
    return all;
  }

protected:
  Launcher(Launcher&&) = default;
  Launcher& operator=(Launcher&&) = default;

  /// Spawns plan() with `work`. Throws if it did not succeed.
  void start(std::variant<Work, Command> work);

private:
  template <class R, class... P, class... A>
  auto run_function(R (*function)(World&, P...), const A&... arguments) {
    launch(detail::work_with_world(function, arguments...));
    if constexpr (!std::is_void_v<R>)
      return results<detail::Value<R>>();
  }

  StartMethod start_method_;
  std::optional<int> nprocs_;
  LaunchOptions options_;
  JobReport last_report_;
};

} // namespace muster
