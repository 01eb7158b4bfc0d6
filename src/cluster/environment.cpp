#include <muster/cluster/environment.hpp>
#include <muster/launch/error.hpp>

#include <array>
#include <charconv>
#include <vector>

#include <unistd.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace muster {

namespace {

/// A whole number in [least, most]. Throws UsageError that shows the variable.
int number_of(const EnvSnapshot& environment, const std::string& name, int least, int most) {
  const std::string& text = *environment.find(name);
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < least || number > most)
    throw UsageError(fmt::format("{}='{}' is not a whole number from {} to {}; unset it, or start "
                                 "ranks with a launcher that "
                                 "sets it right",
                                 name,
                                 text,
                                 least,
                                 most));
  return number;
}

constexpr int most_ranks = 1'000'000;

} // namespace

EnvSnapshot EnvSnapshot::current() {
  EnvSnapshot snapshot;
  for (char** variable = ::environ; variable && *variable; ++variable) {
    const std::string text = *variable;
    const auto equals = text.find('=', 1);
    if (equals != std::string::npos)
      snapshot.variables.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return snapshot;
}

const std::string* EnvSnapshot::find(const std::string& name) const {
  const auto found = variables.find(name);
  return found == variables.end() || found->second.empty() ? nullptr : &found->second;
}

std::optional<World> TorchrunEnvironment::world(const EnvSnapshot& environment) const {
  static constexpr std::array needed = {
      "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"};
  std::vector<std::string> missing;
  for (const char* name : needed)
    if (!environment.find(name))
      missing.emplace_back(name);
  const bool by_torchrun = environment.find("TORCHELASTIC_RUN_ID") != nullptr;
  if (!missing.empty() && !by_torchrun)
    return std::nullopt;
  if (!missing.empty())
    throw UsageError(
        fmt::format("TORCHELASTIC_RUN_ID is set, but {} {} not: this process inherited "
                    "parts of torchrun's environment; unset TORCHELASTIC_RUN_ID, or "
                    "set MUSTER_CLUSTER=local",
                    fmt::join(missing, ", "),
                    missing.size() == 1 ? "is" : "are"));
  World world;
  world.size = number_of(environment, "WORLD_SIZE", 1, most_ranks);
  world.rank = number_of(environment, "RANK", 0, world.size - 1);
  world.local_size = number_of(environment, "LOCAL_WORLD_SIZE", 1, world.size);
  world.local_rank = number_of(environment, "LOCAL_RANK", 0, world.local_size - 1);
  if (environment.find("GROUP_WORLD_SIZE"))
    world.node_count = number_of(environment, "GROUP_WORLD_SIZE", 1, world.size);
  else
    world.node_count = (world.size + world.local_size - 1) / world.local_size;
  if (environment.find("GROUP_RANK"))
    world.node_rank = number_of(environment, "GROUP_RANK", 0, world.node_count - 1);
  if (environment.find("TORCHELASTIC_RESTART_COUNT"))
    world.attempt = number_of(environment, "TORCHELASTIC_RESTART_COUNT", 0, most_ranks);
  world.master_addr = *environment.find("MASTER_ADDR");
  world.master_port = number_of(environment, "MASTER_PORT", 1, 65535);
  const std::string* agent = environment.find("TORCHELASTIC_USE_AGENT_STORE");
  world.store_is_served = agent && (*agent == "True" || *agent == "1" || *agent == "true");
  world.source = by_torchrun ? "torchrun (TORCHELASTIC_RUN_ID, RANK, WORLD_SIZE)"
                             : "torchrun's variables (RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR)";
  return world;
}

std::optional<World> detect_world(const EnvSnapshot& environment) {
  const std::string* chosen = environment.find("MUSTER_CLUSTER");
  if (chosen && *chosen == "local")
    return std::nullopt;
  if (chosen && *chosen != "torchrun")
    throw UsageError(
        fmt::format("MUSTER_CLUSTER='{}': it must be one of local, torchrun", *chosen));
  const auto world = TorchrunEnvironment().world(environment);
  if (chosen && !world)
    throw UsageError("MUSTER_CLUSTER=torchrun, but RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, "
                     "MASTER_ADDR and MASTER_PORT are not all set");
  return world;
}

} // namespace muster
