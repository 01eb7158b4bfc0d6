#pragma once

#include <string>
#include <utility>
#include <vector>

namespace muster::comm {

/// "rank 3", "ranks 1 and 2" or "ranks 0, 1 and 5"; of many, the first eight and how many more.
std::string rank_list(const std::vector<int>& ranks);

/// What ranks said, with who said it: `rank 0: "a"; ranks 1 and 2: "b"`. At most four texts.
std::string who_said_what(const std::vector<std::string>& by_rank);

} // namespace muster::comm
