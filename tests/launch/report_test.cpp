#include <muster/launch/error.hpp>
#include <muster/launch/report.hpp>

#include <csignal>

#include <nlohmann/json.hpp>

#include "catch.hpp"

using muster::ExitStatus;
using muster::Outcome;

namespace {

muster::JobReport failed_job() {
  muster::JobReport job;
  for (int rank = 0; rank < 2; ++rank) {
    muster::RankReport report;
    report.rank = report.local_rank = rank;
    report.pid = 100 + rank;
    report.host = "here";
    report.outcome = rank == 1 ? Outcome::failed : Outcome::victim;
    report.status = rank == 1 ? ExitStatus::signaled(SIGKILL) : ExitStatus::signaled(SIGTERM);
    job.ranks.push_back(report);
  }
  job.first = 1;
  job.reason = to_line(job.ranks[1]);
  return job;
}

} // namespace

TEST_CASE("a signal is not an exit code", "[report]") {
  const auto killed = ExitStatus::signaled(SIGKILL);
  CHECK(killed.signal() == SIGKILL);
  CHECK(killed.code() == std::nullopt);
  CHECK(killed.shell_code() == 137);
  CHECK(to_string(killed) == "signal 9 (SIGKILL)");
  CHECK(to_string(ExitStatus::signaled(SIGSEGV, true)) == "signal 11 (SIGSEGV), core dumped");
  CHECK(to_string(ExitStatus::exited(3)) == "exit code 3");
  CHECK(ExitStatus::exited(9) != killed);
}

TEST_CASE("the first failure gives the job its exit code", "[report]") {
  muster::JobReport job = failed_job();
  CHECK(job.exit_code() == 137);
  job.ranks[1].status = ExitStatus::exited(7);
  CHECK(job.exit_code() == 7);
  job.ranks[1].status = ExitStatus::exited(0); // it left early
  CHECK(job.exit_code() == 1);
  job.first.reset();
  job.stopped = true;
  job.signal = SIGINT;
  CHECK(job.exit_code() == 130);
  job.signal = 0;
  job.timed_out = true;
  CHECK(job.exit_code() == 124);
}

TEST_CASE("a rank's failure is one line that says who and how", "[report]") {
  muster::RankReport rank = failed_job().ranks[1];
  CHECK(to_line(rank) == "rank 1 (pid 101): signal 9 (SIGKILL)");
  rank.hint = "probably the OOM killer";
  CHECK(to_line(rank) == "rank 1 (pid 101): signal 9 (SIGKILL), probably the OOM killer");
  rank.exception_type = "std::runtime_error";
  rank.message = "boom";
  CHECK(to_line(rank) == "rank 1 (pid 101): std::runtime_error: boom, probably the OOM killer");
}

TEST_CASE("the report for programs is JSON that says all of it", "[report]") {
  muster::JobReport job = failed_job();
  job.ranks[1].message = "not UTF-8: \xff";
  const auto json = nlohmann::json::parse(to_json(job));
  CHECK(json["ok"] == false);
  CHECK(json["exit_code"] == 137);
  CHECK(json["first_failure"] == 1);
  CHECK(json["ranks"][0]["outcome"] == "victim");
  CHECK(json["ranks"][1]["signal"] == SIGKILL);
  CHECK(json["ranks"][1]["exit_code"].is_null());
}

TEST_CASE("errors are one line and know their exit code", "[error]") {
  CHECK(std::string(muster::SystemError("opening x", ENOENT).what()) ==
        "opening x: No such file or directory");
  const muster::RankFailure failure(failed_job());
  CHECK(std::string(failure.what()) == "rank 1 (pid 101): signal 9 (SIGKILL)");
  CHECK(failure.first().rank == 1);
  CHECK(failure.exit_code() == 137);
  CHECK(muster::UsageError("x").exit_code() == 2);
  CHECK(muster::Timeout("x").exit_code() == 124);
}

TEST_CASE("a backtrace is looked up once, and only when it is asked for", "[report]") {
  int looked = 0;
  muster::RankReport rank;
  CHECK(rank.backtrace.empty());
  CHECK(rank.backtrace.lines().empty());
  rank.backtrace = muster::Backtrace([&looked] { return "#0 main, " + std::to_string(++looked); });
  const muster::RankReport copy = rank;
  CHECK(looked == 0);
  CHECK(copy.backtrace.lines() == "#0 main, 1");
  CHECK(rank.backtrace.lines() == "#0 main, 1");
  CHECK(muster::Backtrace(std::string()).empty());
}
