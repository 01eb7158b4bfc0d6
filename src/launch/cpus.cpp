#include "cpus.hpp"

#include <muster/launch/error.hpp>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <optional>

#include <fmt/format.h>

#include "../process/cgroup.hpp"
#include "../process/exec.hpp"

namespace muster {

namespace {

constexpr double no_limit = std::numeric_limits<double>::infinity();

double quota_v1(const std::string& folder) {
  double quota = -1;
  double period = 0;
  std::ifstream(folder + "/cpu.cfs_quota_us") >> quota;
  std::ifstream(folder + "/cpu.cfs_period_us") >> period;
  return quota > 0 && period > 0 ? quota / period : no_limit;
}

/// "max 100000" or "150000 100000".
double quota_v2(const std::string& folder) {
  double quota = -1;
  double period = 0;
  std::ifstream(folder + "/cpu.max") >> quota >> period;
  return quota > 0 && period > 0 ? quota / period : no_limit;
}

double cgroup_quota(const std::string& root) {
  double least = no_limit;
  for (const process::CgroupHierarchy& hierarchy : process::cgroups_of("cpu", root))
    for (const std::string& folder : hierarchy.folders)
      least = std::min(least, hierarchy.version == 2 ? quota_v2(folder) : quota_v1(folder));
  return least;
}

std::optional<int> chosen_cpus() {
  const char* text = std::getenv("MUSTER_CPUS");
  if (text == nullptr || *text == '\0')
    return std::nullopt;
  const std::string chosen = text;
  int cpus = 0;
  const auto [end, error] = std::from_chars(chosen.data(), chosen.data() + chosen.size(), cpus);
  if (error != std::errc() || end != chosen.data() + chosen.size() || cpus < 1)
    throw UsageError(fmt::format(
        "MUSTER_CPUS '{}': write the number of usable CPUs, 1 or more, or unset it", chosen));
  return cpus;
}

} // namespace

int usable_cpus(const std::string& root) {
  if (const auto chosen = chosen_cpus())
    return *chosen;
  const auto allowed = static_cast<double>(process::allowed_cpus().size());
  return std::max(1, static_cast<int>(std::min(allowed, cgroup_quota(root))));
}

} // namespace muster
