#include "binfmt_misc.hpp"

#include <fstream>
#include <map>
#include <memory>

#include <dirent.h>

namespace muster::process {

namespace {

std::string from_hex(const std::string& digits) {
  std::string bytes;
  for (std::size_t i = 0; i + 1 < digits.size(); i += 2)
    bytes += static_cast<char>(std::stoi(digits.substr(i, 2), nullptr, 16));
  return bytes;
}

bool matches(const std::string& head,
             std::size_t offset,
             const std::string& magic,
             std::string mask) {
  if (magic.empty() || offset + magic.size() > head.size())
    return false;
  mask.resize(magic.size(), '\xff');
  for (std::size_t i = 0; i < magic.size(); ++i)
    if (((head[offset + i] ^ magic[i]) & mask[i]) != 0)
      return false;
  return true;
}

/// A file of lines "enabled", "extension .exe", "offset 0", "magic 7f45", "mask ffff".
bool handles(const std::string& file, const std::string& path, const std::string& head) {
  std::map<std::string, std::string> fields;
  std::ifstream lines(file);
  for (std::string line; std::getline(lines, line);) {
    const auto space = line.find(' ');
    fields[line.substr(0, space)] = space == std::string::npos ? "" : line.substr(space + 1);
  }
  if (!fields.contains("enabled"))
    return false;
  if (fields.contains("extension"))
    return path.ends_with(fields["extension"]);
  return matches(head,
                 fields.contains("offset") ? std::stoul(fields["offset"]) : 0,
                 from_hex(fields["magic"]),
                 from_hex(fields["mask"]));
}

bool is_on(const std::string& folder) {
  std::string status;
  return std::getline(std::ifstream(folder + "/status"), status) && status == "enabled";
}

} // namespace

bool has_binfmt_handler(const std::string& path,
                        const std::string& head,
                        const std::string& folder) {
  if (!is_on(folder))
    return false;
  const std::unique_ptr<DIR, int (*)(DIR*)> list(::opendir(folder.c_str()), &::closedir);
  while (const dirent* entry = list ? ::readdir(list.get()) : nullptr) {
    const std::string name = entry->d_name;
    if (name != "." && name != ".." && name != "register" && name != "status" &&
        handles(folder + "/" + name, path, head))
      return true;
  }
  return false;
}

} // namespace muster::process
