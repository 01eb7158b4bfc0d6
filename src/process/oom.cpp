#include "oom.hpp"

#include <array>
#include <fstream>
#include <limits>
#include <optional>

#include <fmt/format.h>

namespace muster::process {

namespace {

/// The number behind "oom_kill" in a file of lines "key number".
std::optional<std::uint64_t> oom_kills(const std::string& file) {
  std::ifstream lines(file);
  std::string key;
  std::uint64_t number = 0;
  while (lines >> key >> number)
    if (key == "oom_kill")
      return number;
  return std::nullopt;
}

/// v1 writes a number near 2^63 for no limit, v2 "max".
std::optional<std::uint64_t> limit_in(const std::string& file) {
  constexpr std::uint64_t none = std::uint64_t{1} << 62;
  std::uint64_t bytes = none;
  if (!(std::ifstream(file) >> bytes) || bytes >= none)
    return std::nullopt;
  return bytes;
}

std::string in_units(std::uint64_t bytes) {
  constexpr std::array units{"B", "KiB", "MiB", "GiB", "TiB"};
  auto size = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; size >= 1024 && unit + 1 < units.size(); ++unit)
    size /= 1024;
  return fmt::format("{:.4g} {}", size, units[unit]);
}

} // namespace

OomWatch::OomWatch(const std::string& root) : root_(root), groups_(cgroups_of("memory", root)) {
  for (const CgroupHierarchy& hierarchy : groups_)
    for (const std::string& folder : hierarchy.folders) {
      const std::string file =
          folder + (hierarchy.version == 2 ? "/memory.events" : "/memory.oom_control");
      if (const auto kills = oom_kills(file))
        counters_.push_back({file, *kills});
    }
}

bool OomWatch::killed_since() const {
  bool risen = false;
  for (Counter& counter : counters_) {
    const std::uint64_t kills = oom_kills(counter.file).value_or(counter.seen);
    risen = risen || kills > counter.seen;
    counter.seen = kills;
  }
  return risen;
}

std::string OomWatch::limit() const {
  std::uint64_t least = std::numeric_limits<std::uint64_t>::max();
  std::string group;
  for (const CgroupHierarchy& hierarchy : groups_)
    for (const std::string& folder : hierarchy.folders) {
      const auto bytes =
          limit_in(folder + (hierarchy.version == 2 ? "/memory.max" : "/memory.limit_in_bytes"));
      if (bytes && *bytes < least) {
        least = *bytes;
        group = folder.substr(root_ == "/" ? 0 : root_.size());
      }
    }
  return group.empty() ? "" : fmt::format("memory limit {} of cgroup {}", in_units(least), group);
}

} // namespace muster::process
