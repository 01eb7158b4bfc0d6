#include "comm/rank_list.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace muster::comm {

std::string rank_list(const std::vector<int>& ranks) {
  constexpr std::size_t shown = 8;
  if (ranks.size() == 1)
    return fmt::format("rank {}", ranks.front());
  std::string text = "ranks ";
  const std::size_t count = std::min(ranks.size(), shown);
  for (std::size_t i = 0; i < count; ++i) {
    const bool last = i + 1 == ranks.size();
    text += fmt::format("{}{}", i == 0 ? "" : last ? " and " : ", ", ranks[i]);
  }
  if (ranks.size() > shown)
    text += fmt::format(" and {} more", ranks.size() - shown);
  return text;
}

std::string who_said_what(const std::vector<std::string>& by_rank) {
  constexpr std::size_t shown = 4;
  std::vector<std::pair<std::string, std::vector<int>>> groups;
  for (std::size_t rank = 0; rank < by_rank.size(); ++rank) {
    const auto same = std::find_if(groups.begin(), groups.end(), [&](const auto& group) {
      return group.first == by_rank[rank];
    });
    const int number = static_cast<int>(rank);
    if (same != groups.end())
      same->second.push_back(number);
    else
      groups.push_back({by_rank[rank], {number}});
  }
  std::string text;
  for (std::size_t i = 0; i < std::min(groups.size(), shown); ++i)
    text +=
        fmt::format("{}{}: {}", i == 0 ? "" : "; ", rank_list(groups[i].second), groups[i].first);
  if (groups.size() > shown)
    text += fmt::format("; and {} other answers", groups.size() - shown);
  return text;
}

} // namespace muster::comm
