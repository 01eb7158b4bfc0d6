#pragma once

#include <muster/launch/rank_set.hpp>
#include <muster/launch/task.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include <unistd.h>

#include "fd.hpp"

namespace muster::process {

/// Copies the launcher's standard input to ranks, inside somebody else's epoll loop: no thread, and
/// no call blocks. Nothing is read before every rank has taken what came before, so that the
/// slowest sets the pace. An input that is a file is not copied: each rank gets a description of
/// its own.
class InputPump {
public:
  using Clock = std::chrono::steady_clock;

  /// `fed` are local ranks; `source` is the standard input. Throws SystemError.
  InputPump(const RankSet& fed, const std::vector<RankSpec>& ranks, int source = STDIN_FILENO);
  InputPump(const InputPump&) = delete;
  InputPump& operator=(const InputPump&) = delete;

  /// The i-th rank's standard input; -1 for one that is not fed. Closed by close_child_ends, which
  /// is to be called once all ranks have been started.
  int child_end(std::size_t i) const { return ranks_[i].child.get(); }
  void close_child_ends();
  /// Every descriptor in here: a forked rank closes them.
  std::vector<int> fds() const;

  /// An epoll descriptor: readable when turn() has something to do.
  int fd() const noexcept { return epoll_.get(); }
  void turn(Clock::time_point now = Clock::now());
  /// When turn() is to be called whether or not fd() is readable: while another process group has
  /// the terminal, reading it would stop this process.
  std::optional<Clock::time_point> deadline() const { return look_again_; }

  /// The i-th rank is not fed any more.
  void rank_ended(std::size_t i);

private:
  struct Rank {
    Fd child;
    Fd write;
    std::size_t taken = 0; // of the bytes in `buffer_`
    bool watched = false;  // its pipe is full
  };

  Fd give_file(bool only_reader) const;
  void make_pipe(Rank& rank);
  bool belongs_to_others() const noexcept;
  void read_source();
  void feed(std::size_t i);
  void end();
  void settle();
  bool watch_source(bool wanted);
  void watch_rank(std::size_t i, bool wanted);

  Fd epoll_;
  Fd source_;
  bool is_terminal_ = false;
  bool source_watched_ = false;
  std::vector<Rank> ranks_;
  std::vector<char> buffer_;
  std::size_t size_ = 0; // of what is in `buffer_`
  std::optional<Clock::time_point> look_again_;
};

} // namespace muster::process
