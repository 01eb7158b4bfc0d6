#pragma once

#include <cstdint>
#include <mutex>
#include <vector>

#include <sys/types.h>

#include "fd.hpp"
#include "rank.hpp"

namespace muster::process {

/// A tiny process that outlives the launcher by a moment: it knows the process groups of all ranks
/// and kills them when the launcher has died, grandchildren included. One that was made while the
/// launcher had one thread can also make ranks: it is the fork server.
///
/// It and the ranks it makes are children of the launcher that the launcher's own wait() calls do
/// not see (their exit signal is 0).
class Guardian {
public:
  /// What all ranks of a job get from their fork server.
  struct Job {
    int arguments;
    int page;
    int directory;
  };

  /// What one rank gets.
  struct Rank {
    int control;
    int result;
    int input;
    int output;
    int error;
  };

  /// Makes the process. `can_fork` only while this process has one thread. Throws SystemError.
  explicit Guardian(bool can_fork);
  Guardian(const Guardian&) = delete;
  Guardian& operator=(const Guardian&) = delete;
  ~Guardian();

  bool can_fork() const noexcept { return can_fork_; }
  bool alive() const noexcept;

  /// Asks for ranks, one after the other; pids in the same order. Stops at the first that could not
  /// be made: then there are fewer pids, and `error` holds the reason. Any thread.
  std::vector<pid_t> fork_ranks(const Job& job, const std::vector<Rank>& ranks, int& error);

  /// The guardian kills this process and its group when the launcher dies. A child calls it for
  /// itself before it can have children of its own. Async-signal-safe, never blocks.
  void watch(pid_t pid) const noexcept { tell(socket_.get(), pid, true); }
  void unwatch(pid_t pid) const noexcept { tell(socket_.get(), pid, false); }

  /// For a child between clone and exec: Guardian::watch without an object.
  static void tell(int socket, pid_t pid, bool watch) noexcept;

  /// Becomes readable when the guardian has ended.
  int pidfd() const noexcept { return pidfd_.get(); }
  int socket() const noexcept { return socket_.get(); }

  /// In a forked child: gives up the parent's guardian without ending it.
  void abandon() noexcept;

private:
  std::mutex mutex_; // one job's requests at a time
  Fd socket_;
  Fd pidfd_;
  bool can_fork_;
};

} // namespace muster::process
