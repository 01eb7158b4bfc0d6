#include <muster/launch/report.hpp>

#include <fmt/format.h>
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
      {"phase", rank.phase},
      {"started_s", seconds(rank.started)},
      {"ended_s", seconds(rank.ended)},
  };
  json["exit_code"] = rank.status.code() ? nlohmann::json(*rank.status.code()) : nullptr;
  json["signal"] = rank.status.signal() ? nlohmann::json(*rank.status.signal()) : nullptr;
  for (const auto& [name, text] : {std::pair("exception", &rank.exception_type),
                                   std::pair("message", &rank.message),
                                   std::pair("hint", &rank.hint)})
    if (!text->empty())
      json[name] = *text;
  return json;
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
  if (const RankReport* failure = first_failure())
    return failure->status.success() ? 1 : failure->status.shell_code();
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
  if (report.ok())
    return fmt::format("muster: all {} ranks succeeded\n", report.ranks.size());
  std::string text = fmt::format("muster: {}\n", report.reason);
  if (report.attempt > 0)
    text += fmt::format("  after {} restarts\n", report.attempt);
  for (const RankReport& rank : report.ranks) {
    const bool first = &rank == report.first_failure();
    text += fmt::format(
        "  {} rank {} (local rank {}, pid {} on {}), {} after {:.3f} s, was {}: {}{}{}\n",
        first ? "*" : " ",
        rank.rank,
        rank.local_rank,
        rank.pid,
        rank.host,
        first ? "failed first" : to_string(rank.outcome),
        seconds(rank.ended),
        rank.phase,
        cause(rank),
        rank.hint.empty() ? "" : ", ",
        rank.hint);
  }
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
  json["first_failure"] = failure ? nlohmann::json(failure->rank) : nullptr;
  for (const RankReport& rank : report.ranks)
    json["ranks"].push_back(to_json_value(rank));
  return json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

} // namespace muster
