#pragma once

#include <muster/launch/backtrace.hpp>
#include <muster/launch/blob.hpp>
#include <muster/launch/exit_status.hpp>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <sys/types.h>

namespace muster {

/// What became of a rank.
enum class Outcome {
  running,   ///< it has not ended (only seen in callbacks)
  succeeded, ///< its function returned and its result is whole
  failed,    ///< it failed by itself
  victim,    ///< it failed, or was stopped, because another rank had failed or the job was stopped
};

/// Which exit code stands for a failed job.
enum class ExitCodeRule {
  first,    ///< of the rank that failed first: its code, or 128 + signal
  max,      ///< the highest of all ranks that failed by themselves
  torchrun, ///< 1, whatever happened
};

/// Everything that is known about one rank of a job. A plain value.
struct RankReport {
  int rank = 0;
  int local_rank = 0;
  pid_t pid = 0;
  std::string host;
  Outcome outcome = Outcome::running;
  ExitStatus status;
  std::string exception_type; ///< demangled type of the exception that ended the rank, if one did
  std::string message;        ///< its text, or what muster found out (one line or more)
  std::string hint;           ///< a likely cause, e.g. the OOM killer
  std::string phase;          ///< what the rank was doing last, e.g. "running, step 12"
  std::string log_tail;       ///< the last lines of its output, where the launcher has seen it
  Backtrace backtrace;        ///< at a fatal signal, or where it hung
  std::vector<std::string> log_files;
  bool ready = false; ///< its function was entered, or its program lived for a while
  std::chrono::nanoseconds started{}; ///< since the launch began
  std::chrono::nanoseconds ended{};   ///< since the launch began
  Blob result;                        ///< what the function returned, encoded

  bool succeeded() const noexcept { return outcome == Outcome::succeeded; }
};

/// What became of a job.
struct JobReport {
  std::vector<RankReport> ranks; ///< in rank order
  std::optional<int> first;      ///< index in `ranks` of the first failure, if a rank failed
  int signal = 0;                ///< the signal that stopped the job, 0 if none did
  bool stopped = false;          ///< the stop token, or a signal, ended the job
  bool timed_out = false;        ///< a time limit of LaunchOptions ended the job
  std::string reason;            ///< one line on what ended a job that did not succeed
  int attempt = 0;               ///< 0, or the number of restarts before this attempt
  ExitCodeRule exit_code_rule = ExitCodeRule::first;
  std::vector<std::string> notes; ///< what else is worth knowing, such as lost log output

  bool ok() const noexcept;
  /// nullptr if no rank failed by itself.
  const RankReport* first_failure() const noexcept;
  /// 0, the first failure's code or 128 + signal (or what exit_code_rule says), 128 + the signal
  /// that stopped the job, or 124 after a time limit.
  int exit_code() const noexcept;
};

/// One line: `rank 3 (pid 4242): signal 9 (SIGKILL), probably the OOM killer`.
std::string to_line(const RankReport& report);

/// The whole report for people, several lines.
std::string to_string(const JobReport& report);

/// The whole report for programs. Results are not part of it.
std::string to_json(const JobReport& report);

} // namespace muster
