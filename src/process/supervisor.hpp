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
#include "guardian.hpp"
#include "signals.hpp"
#include "store_server.hpp"
#include "sweep.hpp"

namespace muster::process {

/// Watches the ranks of one job from the thread that launched them: pidfds, control channels,
/// signals and deadlines in one epoll loop, for every start method. Serves the job's store.
class Supervisor {
public:
  using Clock = std::chrono::steady_clock;

  /// Throws SystemError.
  Supervisor(const LaunchOptions& options, const StatusPage& page, std::string token);
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;
  ~Supervisor();

  /// What forked ranks must close.
  std::vector<int> fds() const { return {epoll_.get(), wake_.get()}; }

  /// Blocks until every rank has ended. `ranks` are the children's specs, in the same order.
  JobReport run(std::vector<Child> children, const std::vector<RankSpec>& ranks);

private:
  enum class Stage { running, terminating, killing };

  struct Member {
    Child child;
    bool ended = false;
    std::optional<Failure> failure = {};
    std::deque<std::pair<Kind, std::string>> outbox = {}; // what the channel did not take at once
  };

  void take_charge(std::vector<Child> children, const std::vector<RankSpec>& ranks);
  void watch(int fd, std::uint64_t tag, std::uint32_t events);
  void watch_guardian();
  int wait_ms() const;
  void turn();
  void on_event(std::uint64_t tag, std::uint32_t events);
  void on_time(Clock::time_point now);
  void on_wake();
  void read_channel(std::size_t i);
  void flush_outbox(std::size_t i);
  void send(std::size_t i, Kind kind, std::string body);
  void reap(std::size_t i);
  void describe_end(std::size_t i, ExitStatus status);
  void judge();
  void declare_first(std::size_t i);
  void stop(const std::string& why);
  void terminate();
  void kill();
  void give_up();
  std::vector<std::size_t> not_started() const;
  std::string list(const std::vector<std::size_t>& members) const;
  RankReport& report(std::size_t i) { return report_.ranks[i]; }

  const LaunchOptions& options_;
  const StatusPage& page_;
  std::string token_;
  Clock::time_point began_ = Clock::now();
  Fd epoll_;
  Fd wake_; // an eventfd: signals and the stop token
  std::unique_ptr<SignalWatch> signals_;
  std::unique_ptr<std::stop_callback<std::function<void()>>> on_stop_;
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
  std::optional<Clock::time_point> stage_over_; // grace, or the wait after KILL
};

} // namespace muster::process
