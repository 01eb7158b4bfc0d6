#include "gpus.hpp"

#include <muster/launch/error.hpp>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <fmt/format.h>

namespace muster::process {

namespace {

constexpr const char* list_variable = "CUDA_VISIBLE_DEVICES";

struct Gpu {
  std::string address; // on the PCI bus: "0000:1b:00.0"
  std::string uuid;    // "GPU-..."; empty where the driver does not say, as before the first use
};

/// GPUs that a process sees, as places among the installed ones; nullopt: which one is not known.
using Seen = std::vector<std::optional<std::size_t>>;

std::string trimmed(const std::string& text) {
  constexpr const char* blanks = " \t";
  const auto first = text.find_first_not_of(blanks);
  return first == std::string::npos ? ""
                                    : text.substr(first, text.find_last_not_of(blanks) + 1 - first);
}

/// What follows "name:" in a file of such lines.
std::string fact(const std::filesystem::path& path, const std::string& name) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);)
    if (line.starts_with(name + ":"))
      return trimmed(line.substr(name.size() + 1));
  return "";
}

/// In the order of their addresses. A GPU that the driver was told to leave alone is no GPU.
std::vector<Gpu> installed_gpus(const std::string& root) {
  std::vector<Gpu> gpus;
  std::error_code missing;
  for (const auto& folder :
       std::filesystem::directory_iterator(root + "/proc/driver/nvidia/gpus", missing)) {
    const auto information = folder.path() / "information";
    if (fact(information, "GPU Excluded") == "Yes")
      continue;
    const std::string uuid = fact(information, "GPU UUID");
    const bool known = uuid.find('?') == std::string::npos;
    gpus.push_back({folder.path().filename().string(), known ? uuid : ""});
  }
  std::sort(gpus.begin(), gpus.end(), [](const Gpu& a, const Gpu& b) {
    return std::pair(a.address.size(), a.address) < std::pair(b.address.size(), b.address);
  });
  return gpus;
}

bool is_mig(const std::string& entry) { return entry.starts_with("MIG-"); }
bool is_uuid(const std::string& entry) { return entry.starts_with("GPU-"); }

/// An entry of the list in its shortest form; empty if it names nothing. CUDA ignores what follows
/// a number.
std::string canonical(const std::string& entry) {
  if (is_uuid(entry) || is_mig(entry))
    return entry;
  int number = -1;
  std::from_chars(entry.data(), entry.data() + entry.size(), number);
  return number >= 0 ? std::to_string(number) : "";
}

bool same_kind(const std::string& a, const std::string& b) {
  return is_mig(a) == is_mig(b) && is_uuid(a) == is_uuid(b);
}

/// The list as CUDA reads it: up to the first entry that names nothing or is of another kind than
/// those before; nothing at all if one is repeated. nullopt if there is no list.
std::optional<std::vector<std::string>> listed(const EnvSnapshot& environment) {
  const auto variable = environment.variables.find(list_variable);
  if (variable == environment.variables.end())
    return std::nullopt;
  std::vector<std::string> entries;
  std::istringstream list(variable->second);
  for (std::string part; std::getline(list, part, ',');) {
    const std::string entry = canonical(trimmed(part));
    if (entry.empty() || (!entries.empty() && !same_kind(entry, entries.front())))
      break;
    if (std::find(entries.begin(), entries.end(), entry) != entries.end())
      return std::vector<std::string>();
    entries.push_back(entry);
  }
  return entries;
}

/// By number, by the beginning of a UUID, or by that in a MIG device's old name,
/// MIG-GPU-uuid/instance/instance.
std::optional<std::size_t> find_gpu(const std::string& entry, const std::vector<Gpu>& gpus) {
  if (!is_uuid(entry) && !is_mig(entry)) {
    const auto number = std::stoul(entry);
    return number < gpus.size() ? std::optional(number) : std::nullopt;
  }
  const std::string uuid = is_mig(entry) ? entry.substr(4, entry.find('/') - 4) : entry;
  for (std::size_t i = 0; i < gpus.size(); ++i)
    if (is_uuid(uuid) && gpus[i].uuid.starts_with(uuid))
      return i;
  return std::nullopt;
}

/// For an entry that was not found: the driver's files do not name every GPU, and no MIG device.
bool may_be_there(const std::string& entry, const std::vector<Gpu>& gpus) {
  return is_mig(entry) || (is_uuid(entry) && std::any_of(gpus.begin(), gpus.end(), [](auto& gpu) {
                             return gpu.uuid.empty();
                           }));
}

Seen seen_gpus(const EnvSnapshot& environment, const std::vector<Gpu>& gpus) {
  Seen seen;
  const auto list = listed(environment);
  if (!list)
    for (std::size_t i = 0; i < gpus.size(); ++i)
      seen.emplace_back(i);
  if (!list || gpus.empty())
    return seen;
  for (const std::string& entry : *list) {
    const auto gpu = find_gpu(entry, gpus);
    if (!gpu && !may_be_there(entry, gpus))
      break;
    seen.push_back(gpu);
  }
  return seen;
}

std::optional<int> node_of(const Gpu& gpu, const std::string& root) {
  std::ifstream file(root + "/sys/bus/pci/devices/" + gpu.address + "/numa_node");
  int node = -1;
  return file >> node && node >= 0 ? std::optional(node) : std::nullopt;
}

} // namespace

int visible_gpus(const EnvSnapshot& environment, const std::string& root) {
  return static_cast<int>(seen_gpus(environment, installed_gpus(root)).size());
}

std::vector<std::optional<int>> gpu_numa_nodes(const std::vector<RankSpec>& ranks,
                                               const EnvSnapshot& environment,
                                               const std::string& root) {
  const auto gpus = installed_gpus(root);
  std::vector<std::optional<int>> nodes;
  for (const RankSpec& rank : ranks) {
    EnvSnapshot own = environment;
    const auto list = rank.env.find(list_variable);
    if (list != rank.env.end())
      own.variables[list_variable] = list->second;
    const Seen seen = seen_gpus(own, gpus);
    const bool only_one = list != rank.env.end() && seen.size() == 1;
    const auto number = only_one ? 0 : static_cast<std::size_t>(rank.local_rank);
    const auto gpu = number < seen.size() ? seen[number] : std::nullopt;
    nodes.push_back(gpu ? node_of(gpus[*gpu], root) : std::nullopt);
  }
  return nodes;
}

std::string gpu_for(int local_rank, const EnvSnapshot& environment) {
  const auto list = listed(environment);
  if (!list)
    return std::to_string(local_rank);
  const auto number = static_cast<std::size_t>(local_rank);
  if (number >= list->size())
    throw UsageError(fmt::format(
        "local rank {}: {}='{}' names {}; name one for every rank, or start fewer ranks",
        local_rank,
        list_variable,
        environment.variables.at(list_variable),
        list->size() == 1 ? "1 GPU" : fmt::format("{} GPUs", list->size())));
  return (*list)[number];
}

} // namespace muster::process
