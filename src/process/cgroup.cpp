#include "cgroup.hpp"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <optional>
#include <sstream>

namespace muster::process {

namespace {

struct Mount {
  std::string root; ///< the group that is seen at `point`
  std::string point;
};

bool lists(const std::string& comma_separated, const std::string& word) {
  return ("," + comma_separated + ",").find("," + word + ",") != std::string::npos;
}

bool is_octal(char digit) { return digit >= '0' && digit <= '7'; }

/// mountinfo writes a space as \040.
std::string unescaped(const std::string& text) {
  std::string plain;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 3 < text.size() && is_octal(text[i + 1]) && is_octal(text[i + 2]) &&
        is_octal(text[i + 3])) {
      plain += static_cast<char>(std::stoi(text.substr(i + 1, 3), nullptr, 8));
      i += 3;
    } else {
      plain += text[i];
    }
  }
  return plain;
}

/// All mounts of v2 (`controller` is empty) or of the v1 hierarchy that has `controller`.
std::vector<Mount> mounts_of(const std::string& controller, const std::string& root) {
  std::vector<Mount> mounts;
  std::ifstream file(below(root, "/proc/self/mountinfo"));
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    const std::vector<std::string> fields{std::istream_iterator<std::string>(words), {}};
    const auto dash = std::find(fields.begin(), fields.end(), "-");
    if (dash - fields.begin() < 6 || fields.end() - dash < 4)
      continue;
    const bool fits = controller.empty() ? dash[1] == "cgroup2"
                                         : dash[1] == "cgroup" && lists(dash[3], controller);
    if (fits)
      mounts.push_back({unescaped(fields[3]), unescaped(fields[4])});
  }
  return mounts;
}

/// `path` as seen from `mount`, "" for the mount's own group; nullopt if it is not below it.
std::optional<std::string> relative(const std::string& path, const Mount& mount) {
  const std::string above = mount.root == "/" ? "" : mount.root;
  if (path.find("/..") != std::string::npos || !path.starts_with(above))
    return std::nullopt;
  const std::string rest = path.substr(above.size());
  if (rest.empty() || rest == "/")
    return "";
  return rest[0] == '/' ? std::optional(rest) : std::nullopt;
}

/// The folders of `path` and the groups above it, by the mount that shows the most of them.
std::vector<std::string>
folders_of(std::string path, const std::vector<Mount>& mounts, const std::string& root) {
  if (mounts.empty())
    return {};
  const Mount* best = &mounts.front();
  std::optional<std::string> seen = relative(path, *best);
  for (const Mount& mount : mounts)
    if (const auto rest = relative(path, mount); rest && (!seen || rest->size() > seen->size())) {
      best = &mount;
      seen = rest;
    }
  std::vector<std::string> folders;
  for (path = seen.value_or(""); !path.empty(); path.resize(path.rfind('/')))
    folders.push_back(below(root, best->point + path));
  folders.push_back(below(root, best->point));
  return folders;
}

} // namespace

std::string below(const std::string& root, const std::string& path) {
  return root == "/" ? path : root + path;
}

std::vector<CgroupHierarchy> cgroups_of(const std::string& controller, const std::string& root) {
  std::vector<CgroupHierarchy> found;
  std::ifstream groups(below(root, "/proc/self/cgroup"));
  for (std::string line; std::getline(groups, line);) {
    std::istringstream parts(line);
    std::string id;
    std::string controllers;
    std::string path;
    std::getline(parts, id, ':');
    std::getline(parts, controllers, ':');
    std::getline(parts, path);
    const bool v2 = controllers.empty();
    if (path.empty() || path[0] != '/' || (!v2 && !lists(controllers, controller)))
      continue;
    auto folders = folders_of(path, mounts_of(v2 ? "" : controller, root), root);
    if (!folders.empty())
      found.push_back({v2 ? 2 : 1, std::move(folders)});
  }
  return found;
}

} // namespace muster::process
