#include "cpus.hpp"

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <limits>
#include <sstream>
#include <string>

#include "../process/exec.hpp"

namespace muster {

namespace {

constexpr double no_limit = std::numeric_limits<double>::infinity();

/// cgroup v2: "max 100000" or "150000 100000".
double quota_v2(const std::string& folder) {
  std::ifstream file(folder + "/cpu.max");
  std::string quota;
  double period = 0;
  if (!(file >> quota >> period) || quota == "max" || period <= 0)
    return no_limit;
  return std::stod(quota) / period;
}

double quota_v1(const std::string& folder) {
  double quota = -1;
  double period = 0;
  std::ifstream(folder + "/cpu.cfs_quota_us") >> quota;
  std::ifstream(folder + "/cpu.cfs_period_us") >> period;
  return quota > 0 && period > 0 ? quota / period : no_limit;
}

/// The smallest quota of `path` and all its ancestors under `root`.
double smallest(const std::string& root, std::string path, double (*quota)(const std::string&)) {
  double least = quota(root);
  while (path.size() > 1) {
    least = std::min(least, quota(root + path));
    path.resize(path.rfind('/') == std::string::npos ? 0 : path.rfind('/'));
  }
  return least;
}

double cgroup_quota() {
  double least = no_limit;
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    std::istringstream parts(line);
    std::string id;
    std::string controllers;
    std::string path;
    std::getline(parts, id, ':');
    std::getline(parts, controllers, ':');
    std::getline(parts, path);
    if (controllers.empty())
      least = std::min(least, smallest("/sys/fs/cgroup", path, quota_v2));
    else if (("," + controllers + ",").find(",cpu,") != std::string::npos)
      least = std::min(least, smallest("/sys/fs/cgroup/cpu", path, quota_v1));
  }
  return least;
}

} // namespace

int usable_cpus() {
  const auto allowed = static_cast<double>(process::allowed_cpus().size());
  return std::max(1, static_cast<int>(std::min(allowed, cgroup_quota())));
}

} // namespace muster
