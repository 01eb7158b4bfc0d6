#pragma once

#include <muster/launch/options.hpp>
#include <muster/launch/report.hpp>

#include <chrono>
#include <deque>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "birth.hpp"
#include "crash.hpp"
#include "diagnosis.hpp"
#include "guardian.hpp"
#include "hang_watch.hpp"
#include "input_pump.hpp"
#include "interrupts.hpp"
#include "log_pump.hpp"
#include "store_server.hpp"
#include "sweep.hpp"

namespace muster::process {

/// What a supervisor works with, besides the ranks' processes.
struct Attempt {
  Part part = {};
  const StatusPage& page;
  const std::string& token;
  Interrupts& interrupts;
  Diagnosis& diagnosis;
  LogPump* logs = nullptr;    // none: ranks write where the launcher writes
  InputPump* input = nullptr; // none: ranks do not read what the launcher reads
};

/// Watches the ranks of one attempt from the thread that launched them: pidfds, control channels,
/// signals and deadlines in one epoll loop, for every start method. Serves the job's store.
class Supervisor {
public:
  using Clock = std::chrono::steady_clock;

  /// Throws SystemError.
  Supervisor(const LaunchOptions& options, Attempt attempt);
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;
  ~Supervisor();

  /// What forked ranks must close.
  int fd() const noexcept { return epoll_.get(); }

  /// Blocks until every rank has ended. `ranks` are the children's specs, in the same order.
  JobReport run(std::vector<Child> children, const std::vector<RankSpec>& ranks);

private:
  enum class Stage { running, terminating, killing };

  struct Member {
    Child child;
    bool ended = false;
    std::optional<Failure> failure = {};
    std::optional<Crash> crash = {};
    std::deque<std::pair<Kind, std::string>> outbox = {}; // what the channel did not take at once
  };

  void take_charge(std::vector<Child> children, const std::vector<RankSpec>& ranks);
  void watch(int fd, std::uint64_t tag, std::uint32_t events);
  void watch_guardian();
  int wait_ms() const;
  void turn();
  void on_event(std::uint64_t tag, std::uint32_t events);
  void on_time(Clock::time_point now);
  void on_news();
  void pass_on(const std::vector<int>& signals);
  void suspend();
  void sweep() const;
  bool output_done() const;
  void finish_report();
  void read_channel(std::size_t i);
  void flush_outbox(std::size_t i);
  void send(std::size_t i, Kind kind, std::string body);
  void reap(std::size_t i);
  void describe_end(std::size_t i, ExitStatus status);
  void judge();
  void declare_first(std::size_t i);
  void take_failure(std::size_t i);
  void stop(const std::string& why);
  void terminate();
  void kill();
  void give_up();
  void check_start();
  void check_progress(Clock::time_point now);
  std::vector<std::size_t> running() const;
  std::vector<std::size_t> not_started() const;
  std::string list(const std::vector<std::size_t>& members) const;
  RankReport& report(std::size_t i) { return report_.ranks[i]; }
  RankSlot& slot(std::size_t i) const { return *attempt_.page.slot(i); }

  const LaunchOptions& options_;
  Attempt attempt_;
  HangWatch hangs_;
  Clock::time_point began_ = Clock::now();
  Fd epoll_;
  OrphanSweep orphans_;
  std::shared_ptr<Guardian> guardian_;
  StoreServer store_;
  std::vector<Member> members_;
  std::size_t alive_ = 0;
  std::exception_ptr callback_error_;
  JobReport report_;
  Stage stage_ = Stage::running;
  std::vector<std::size_t> suspects_;            // failed in this turn of the loop
  std::vector<std::size_t> echoes_;              // lost a peer; somebody else may be the cause
  std::optional<Clock::time_point> echo_over_;   // then an echo is the cause after all
  std::optional<Clock::time_point> start_limit_; // every function must be entered by then
  std::optional<Clock::time_point> job_limit_;
  std::optional<Clock::time_point> stage_over_;  // grace, or the wait after KILL
  std::optional<Clock::time_point> output_over_; // nobody reads the console; nobody is waited for
};

} // namespace muster::process
