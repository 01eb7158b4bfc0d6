#include <muster/launch/error.hpp>
#include <muster/launch/init.hpp>

#include <cstdio>
#include <cstring>

#include <fmt/format.h>

#include "../process/rank.hpp"

namespace muster {

SystemError::SystemError(const std::string& subject, int error)
    : Error(
          fmt::format("{}: {}",
                      subject,
                      ::strerrordesc_np(error) ? ::strerrordesc_np(error) : std::to_string(error))),
      error_(error) {}

namespace {

/// The limit that an errno points at, for people.
const char* limit_behind(int error) {
  switch (error) {
  case EAGAIN:
    return " (a limit on processes: ulimit -u, or pids.max of the cgroup)";
  case EMFILE:
    return " (the limit on open files: ulimit -n)";
  case ENFILE:
    return " (the system's limit on open files)";
  case ENOMEM:
    return " (memory)";
  default:
    return "";
  }
}

} // namespace

SpawnFailure::SpawnFailure(int rank, const SystemError& cause)
    : SystemError(Whole{fmt::format("rank {} could not be started: {}{}; no rank is left running",
                                    rank,
                                    cause.what(),
                                    limit_behind(cause.error()))},
                  cause.error()),
      rank_(rank) {}

RankFailure::RankFailure(JobReport report)
    : Error(report.reason), report_(std::make_shared<const JobReport>(std::move(report))) {}

Interrupted::Interrupted(JobReport report)
    : Error(report.reason), report_(std::make_shared<const JobReport>(std::move(report))) {}

int detail::report_error(const std::exception& error) noexcept {
  try {
    const auto* failure = dynamic_cast<const RankFailure*>(&error);
    const auto* ours = dynamic_cast<const Error*>(&error);
    if (failure)
      fmt::print(stderr, "{}", to_string(failure->report()));
    else
      fmt::print(stderr, "muster: {}\n", error.what());
    process::tell_failure(error);
    return ours ? ours->exit_code() : 1;
  } catch (...) {
    return 1;
  }
}

} // namespace muster
