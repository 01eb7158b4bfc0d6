#include "log_plan.hpp"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include <unistd.h>

#include <fmt/format.h>

namespace muster::process {

namespace {

constexpr const char* default_pattern = "[${rank}] ";
constexpr int colors[] = {36, 33, 32, 35, 34, 31}; // cyan, yellow, green, magenta, blue, red

bool has(Streams streams, std::size_t stream) noexcept {
  return (static_cast<unsigned>(streams) & (1U << stream)) != 0;
}

std::string host_name() {
  char name[256] = {};
  ::gethostname(name, sizeof name - 1);
  return name;
}

bool wants_color() {
  const char* no_color = std::getenv("NO_COLOR"); // NOLINT(concurrency-mt-unsafe): only read
  return no_color == nullptr || *no_color == '\0';
}

std::string replaced(std::string text,
                     const std::vector<std::pair<std::string, std::string>>& macros) {
  for (std::size_t at = 0; (at = text.find("${", at)) != std::string::npos; ++at)
    for (const auto& [name, value] : macros)
      if (text.compare(at, name.size(), name) == 0) {
        text.replace(at, name.size(), value);
        at += value.size() - 1; // what a value says is not replaced again
        break;
      }
  return text;
}

} // namespace

LogPlan::LogPlan(const LogOptions& options,
                 const std::string& role,
                 const std::vector<RankSpec>& ranks)
    : options_(options), role_(role), ranks_(ranks) {
  const auto shown = std::count_if(ranks.begin(), ranks.end(), [&](const RankSpec& rank) {
    return to_console(rank, 0) || to_console(rank, 1);
  });
  pattern_ = options.prefix.value_or(shown > 1 ? default_pattern : "");
  raw_ = shown == 1 && pattern_.empty() && !options.drop_when_full;
}

bool LogPlan::to_file(const RankSpec& rank, std::size_t stream) const {
  if (options_.redirects.empty() && options_.tee.empty())
    return !options_.directory.empty();
  return has(options_.redirects.of(rank.local_rank), stream) ||
         has(options_.tee.of(rank.local_rank), stream);
}

bool LogPlan::to_console(const RankSpec& rank, std::size_t stream) const {
  return options_.console.contains(rank.local_rank) &&
         (!has(options_.redirects.of(rank.local_rank), stream) ||
          has(options_.tee.of(rank.local_rank), stream));
}

bool LogPlan::any_file() const {
  return std::any_of(ranks_.begin(), ranks_.end(), [this](const RankSpec& rank) {
    return to_file(rank, 0) || to_file(rank, 1);
  });
}

std::string LogPlan::prefix(const RankSpec& rank, std::size_t stream, bool is_terminal) const {
  std::string text = replaced(pattern_,
                              {{"${rank}", std::to_string(rank.rank)},
                               {"${local_rank}", std::to_string(rank.local_rank)},
                               {"${role_name}", role_},
                               {"${hostname}", host_name()},
                               {"${stream}", stream_names.at(stream)}});
  if (text.empty() || !options_.color.value_or(is_terminal && wants_color()))
    return text;
  const auto color = static_cast<std::size_t>(rank.rank) % std::size(colors);
  return fmt::format("\x1b[{}m{}\x1b[0m", colors[color], text);
}

} // namespace muster::process
