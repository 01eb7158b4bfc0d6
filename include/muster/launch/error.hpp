#pragma once

#include <muster/launch/report.hpp>

#include <stdexcept>
#include <string>

namespace muster {

/// Base of every exception that muster throws. `what()` is one line that names its subject.
class Error : public std::runtime_error {
public:
  using std::runtime_error::runtime_error;

  /// What a program should exit with when nothing catches this error.
  virtual int exit_code() const noexcept { return 1; }
};

/// The call, the arguments or the environment are wrong. Thrown before anything was started.
class UsageError : public Error {
public:
  using Error::Error;
  int exit_code() const noexcept override { return 2; }
};

/// The program that ranks are to run cannot be run. Thrown before anything was started.
class ProgramError : public UsageError {
public:
  /// What a shell would exit with.
  enum class Kind { not_found = 127, not_executable = 126 };

  ProgramError(const std::string& message, Kind kind) : UsageError(message), kind_(kind) {}
  Kind kind() const noexcept { return kind_; }
  int exit_code() const noexcept override { return static_cast<int>(kind_); }

private:
  Kind kind_;
};

/// The operating system refused something.
class SystemError : public Error {
public:
  /// `subject` says what was tried, `error` is an errno value.
  SystemError(const std::string& subject, int error);
  int error() const noexcept { return error_; }

protected:
  struct Whole {
    std::string text;
  };
  SystemError(Whole message, int error) : Error(message.text), error_(error) {}

private:
  int error_;
};

/// A rank could not be started. All ranks that were started before it have been stopped.
class SpawnFailure : public SystemError {
public:
  SpawnFailure(int rank, const SystemError& cause);
  int rank() const noexcept { return rank_; }

private:
  int rank_;
};

/// Something did not happen within its time limit.
class Timeout : public Error {
public:
  using Error::Error;
  int exit_code() const noexcept override { return 124; }
};

/// Ranks could not meet, or disagree on what they are about to do.
class RendezvousError : public Error {
public:
  using Error::Error;
};

/// A rank failed; all others have been stopped. The report says everything that is known.
class RankFailure : public Error {
public:
  explicit RankFailure(JobReport report);

  const JobReport& report() const noexcept { return *report_; }
  /// The rank that failed first.
  const RankReport& first() const noexcept { return *report_->first_failure(); }
  int exit_code() const noexcept override { return report_->exit_code(); }

private:
  std::shared_ptr<const JobReport> report_;
};

/// The job was stopped from outside: by a signal to the launcher or by its stop token.
class Interrupted : public Error {
public:
  explicit Interrupted(JobReport report);

  const JobReport& report() const noexcept { return *report_; }
  int exit_code() const noexcept override { return report_->exit_code(); }

private:
  std::shared_ptr<const JobReport> report_;
};

} // namespace muster
