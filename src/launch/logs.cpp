#include <muster/launch/error.hpp>
#include <muster/launch/logs.hpp>

#include <algorithm>
#include <sstream>

#include <fmt/format.h>

namespace muster {

namespace {

/// '0' to '3', as torchrun writes it; nullopt for anything else.
std::optional<Streams> streams_from(const std::string& text) {
  if (text.size() != 1 || text[0] < '0' || text[0] > '3')
    return std::nullopt;
  return static_cast<Streams>(text[0] - '0');
}

} // namespace

StreamMap StreamMap::parse(const std::string& text, const std::string& subject) {
  if (const auto streams = streams_from(text))
    return StreamMap(*streams);
  const UsageError wrong(
      fmt::format("{} '{}': write 0 (none), 1 (stdout), 2 (stderr) or 3 (both), or that by local "
                  "rank, such as 0:3,4-7:1",
                  subject,
                  text));
  StreamMap map;
  std::string ranks; // "0,2-3" of "0,2-3:1" may come in several parts
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');) {
    const auto colon = part.find(':');
    if (!ranks.empty())
      ranks += ',';
    ranks.append(part, 0, colon);
    if (part.empty())
      throw wrong;
    if (colon == std::string::npos)
      continue;
    const auto streams = streams_from(part.substr(colon + 1));
    if (!streams || ranks.empty())
      throw wrong;
    map.by_rank_.emplace_back(RankSet::parse(ranks, fmt::format("{} '{}':", subject, text)),
                              *streams);
    ranks.clear();
  }
  if (map.by_rank_.empty() || !ranks.empty() || text.ends_with(','))
    throw wrong;
  return map;
}

Streams StreamMap::of(int local_rank) const noexcept {
  for (const auto& [ranks, streams] : by_rank_)
    if (ranks.contains(local_rank))
      return streams;
  return everywhere_;
}

bool StreamMap::empty() const noexcept {
  return everywhere_ == Streams::none &&
         std::all_of(by_rank_.begin(), by_rank_.end(), [](const auto& entry) {
           return entry.second == Streams::none;
         });
}

int StreamMap::highest() const noexcept {
  int found = -1;
  for (const auto& [ranks, streams] : by_rank_)
    found = std::max(found, ranks.highest());
  return found;
}

} // namespace muster
