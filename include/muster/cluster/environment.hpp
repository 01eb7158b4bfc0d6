#pragma once

#include <muster/comm/world.hpp>

#include <map>
#include <optional>
#include <string>

namespace muster {

/// The variables that a process was started with: what every detection reads, and all it reads.
struct EnvSnapshot {
  std::map<std::string, std::string> variables;

  /// This process's variables.
  static EnvSnapshot current();

  /// nullptr if the variable is missing or empty.
  const std::string* find(const std::string& name) const;
};

/// A way in which others may have created this process as a rank.
class ClusterEnvironment {
public:
  ClusterEnvironment() = default;
  ClusterEnvironment(const ClusterEnvironment&) = delete;
  ClusterEnvironment& operator=(const ClusterEnvironment&) = delete;
  virtual ~ClusterEnvironment() = default;

  virtual const char* name() const noexcept = 0;
  /// This process's place, or nullopt if this environment did not create it. Throws UsageError,
  /// naming the variables, if they are incomplete or contradict each other.
  virtual std::optional<World> world(const EnvSnapshot& environment) const = 0;
};

/// torchrun, and everything that sets its variables: RANK, WORLD_SIZE, LOCAL_RANK,
/// LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT.
class TorchrunEnvironment : public ClusterEnvironment {
public:
  const char* name() const noexcept override { return "torchrun"; }
  std::optional<World> world(const EnvSnapshot& environment) const override;
};

/// The world that this process was created in by somebody else, or nullopt if nobody did.
/// MUSTER_CLUSTER chooses one environment by name ("local" or "torchrun"); otherwise all are tried.
/// Throws UsageError as ClusterEnvironment::world does.
std::optional<World> detect_world(const EnvSnapshot& environment);

} // namespace muster
