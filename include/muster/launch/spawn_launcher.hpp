#pragma once

#include <muster/launch/launcher.hpp>

namespace muster {

/// Runs a C++ function of this program in new processes on this host.
class SpawnLauncher : public Launcher {
public:
  /// `start_method`: StartMethod::forkserver suits nearly everything.
  explicit SpawnLauncher(StartMethod start_method = StartMethod::forkserver,
                         std::optional<int> nprocs = std::nullopt,
                         LaunchOptions options = {})
      : Launcher(start_method, nprocs, std::move(options)) {}

  JobReport spawn(Task task) override;
};

} // namespace muster
