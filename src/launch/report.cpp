#include <muster/launch/report.hpp>

#include <algorithm>
#include <map>
#include <sstream>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

namespace muster {

namespace {

const char* to_string(Outcome outcome) {
  switch (outcome) {
  case Outcome::running:
    return "running";
  case Outcome::succeeded:
    return "succeeded";
  case Outcome::failed:
    return "failed";
  case Outcome::victim:
    return "victim";
  }
  return "unknown";
}

double seconds(std::chrono::nanoseconds time) {
  return std::chrono::duration<double>(time).count();
}

/// How the rank ended: its exception, or its exit status.
std::string cause(const RankReport& rank) {
  if (!rank.exception_type.empty())
    return fmt::format("{}: {}", rank.exception_type, rank.message);
  if (!rank.message.empty())
    return fmt::format("{}, {}", to_string(rank.status), rank.message);
  return to_string(rank.status);
}

nlohmann::json to_json_value(const RankReport& rank) {
  nlohmann::json json = {
      {"rank", rank.rank},
      {"local_rank", rank.local_rank},
      {"pid", rank.pid},
      {"host", rank.host},
      {"outcome", to_string(rank.outcome)},
      {"core_dumped", rank.status.core_dumped()},
      {"ready", rank.ready},
      {"phase", rank.phase},
      {"started_s", seconds(rank.started)},
      {"ended_s", seconds(rank.ended)},
  };
  json["exit_code"] = rank.status.code() ? nlohmann::json(*rank.status.code()) : nullptr;
  json["signal"] = rank.status.signal() ? nlohmann::json(*rank.status.signal()) : nullptr;
  for (const auto& [name, text] : {std::pair("exception", &rank.exception_type),
                                   std::pair("message", &rank.message),
                                   std::pair("hint", &rank.hint),
                                   std::pair("log_tail", &rank.log_tail)})
    if (!text->empty())
      json[name] = *text;
  if (!rank.backtrace.empty())
    json["backtrace"] = rank.backtrace.lines();
  if (!rank.log_files.empty())
    json["log_files"] = rank.log_files;
  return json;
}

/// The highest exit code among ranks that were not stopped by the launcher.
int highest_code(const JobReport& report) {
  int highest = report.first_failure()->status.shell_code();
  for (const RankReport& rank : report.ranks)
    if (!rank.succeeded() && rank.status.code())
      highest = std::max(highest, *rank.status.code());
  return highest;
}

std::string hint_of(const RankReport& rank) { return rank.hint.empty() ? "" : ", " + rank.hint; }

std::string line_of(const RankReport& rank, bool first) {
  return fmt::format("  {} rank {} (local rank {}, pid {} on {}), {} after {:.3f} s{}{}: {}{}\n",
                     first ? "*" : " ",
                     rank.rank,
                     rank.local_rank,
                     rank.pid,
                     rank.host,
                     first ? "failed first" : to_string(rank.outcome),
                     seconds(rank.ended),
                     rank.phase.empty() ? "" : ", was ",
                     rank.phase,
                     cause(rank),
                     hint_of(rank));
}

/// "0-1, 3-7"
std::string ranges_of(const std::vector<int>& ranks) {
  std::string text;
  for (std::size_t i = 0; i < ranks.size();) {
    std::size_t end = i + 1;
    while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1)
      ++end;
    text += fmt::format("{}{}", text.empty() ? "" : ", ", ranks[i]);
    if (end - i > 1)
      text += fmt::format("-{}", ranks[end - 1]);
    i = end;
  }
  return text;
}

/// A line for each rank; where many ended alike, one for all of them.
std::string rank_lines(const JobReport& report) {
  constexpr std::size_t many = 8;
  std::map<std::string, std::vector<int>> alike;
  const auto key = [](const RankReport& rank) {
    return fmt::format("{}: {}{}", to_string(rank.outcome), cause(rank), hint_of(rank));
  };
  const RankReport* first = report.first_failure();
  for (const RankReport& rank : report.ranks)
    if (&rank != first)
      alike[key(rank)].push_back(rank.rank);
  std::string text = first ? line_of(*first, true) : "";
  for (const RankReport& rank : report.ranks)
    if (&rank != first && alike[key(rank)].size() <= many)
      text += line_of(rank, false);
  for (const auto& [what, ranks] : alike)
    if (ranks.size() > many)
      text += fmt::format("    ranks {} ({} ranks), {}\n", ranges_of(ranks), ranks.size(), what);
  return text;
}

std::string indented(const std::string& title, const std::string& lines) {
  if (lines.empty())
    return "";
  std::string text = fmt::format("  {}:\n", title);
  std::istringstream each(lines);
  for (std::string line; std::getline(each, line);)
    text += fmt::format("    {}\n", line);
  return text;
}

/// What is known beyond the rank's line: of all ranks where they were, of the first what it wrote.
std::string details(const RankReport& rank, bool first) {
  const std::string name = fmt::format("rank {}", rank.rank);
  std::string text = indented("where " + name + " was", rank.backtrace.lines());
  if (!first)
    return text;
  text += indented("the last output of " + name, rank.log_tail);
  if (!rank.log_files.empty())
    text += fmt::format("  its log files: {}\n", fmt::join(rank.log_files, ", "));
  return text;
}

} // namespace

bool JobReport::ok() const noexcept {
  if (stopped || timed_out || first)
    return false;
  for (const RankReport& rank : ranks)
    if (!rank.succeeded())
      return false;
  return true;
}

const RankReport* JobReport::first_failure() const noexcept {
  return first ? &ranks[static_cast<std::size_t>(*first)] : nullptr;
}

int JobReport::exit_code() const noexcept {
  if (ok())
    return 0;
  if (exit_code_rule == ExitCodeRule::torchrun)
    return 1;
  if (const RankReport* failure = first_failure()) {
    const int code =
        exit_code_rule == ExitCodeRule::max ? highest_code(*this) : failure->status.shell_code();
    return code == 0 ? 1 : code;
  }
  if (signal != 0)
    return 128 + signal;
  return timed_out ? 124 : 1;
}

std::string to_line(const RankReport& rank) {
  return fmt::format("rank {} (pid {}): {}{}{}",
                     rank.rank,
                     rank.pid,
                     cause(rank),
                     rank.hint.empty() ? "" : ", ",
                     rank.hint);
}

std::string to_string(const JobReport& report) {
  std::string text;
  if (report.ok())
    text = fmt::format("muster: all {} ranks succeeded\n", report.ranks.size());
  else
    text = fmt::format("muster: {}\n", report.reason);
  if (report.attempt > 0)
    text += fmt::format("  after {} restart{}\n", report.attempt, report.attempt == 1 ? "" : "s");
  if (!report.ok()) {
    text += rank_lines(report);
    for (const RankReport& rank : report.ranks)
      text += details(rank, &rank == report.first_failure());
  }
  for (const std::string& note : report.notes)
    text += fmt::format("  note: {}\n", note);
  return text;
}

std::string to_json(const JobReport& report) {
  nlohmann::json json = {
      {"ok", report.ok()},
      {"exit_code", report.exit_code()},
      {"reason", report.reason},
      {"stopped", report.stopped},
      {"timed_out", report.timed_out},
      {"attempt", report.attempt},
  };
  json["signal"] = report.signal ? nlohmann::json(report.signal) : nullptr;
  const RankReport* failure = report.first_failure();
  json["notes"] = report.notes;
  json["first_failure"] = failure ? nlohmann::json(failure->rank) : nullptr;
  for (const RankReport& rank : report.ranks)
    json["ranks"].push_back(to_json_value(rank));
  return json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

} // namespace muster
