#pragma once

#include <muster/launch/logs.hpp>
#include <muster/launch/task.hpp>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <unistd.h>

#include "console.hpp"
#include "fd.hpp"
#include "line_writer.hpp"
#include "log_file.hpp"
#include "log_plan.hpp"
#include "tail.hpp"

namespace muster::process {

/// Brings what the ranks of one attempt print to files and to the console, inside somebody else's
/// epoll loop: no thread, and no call blocks (but for the disk). A console that is not read makes
/// the ranks wait that are shown on it, and no others.
class LogPump {
public:
  using Clock = LineWriter::Clock;

  /// Makes directories, files and pipes. `out` and `err` are the consoles. Throws UsageError when a
  /// file cannot be made, and SystemError.
  LogPump(const LogOptions& options,
          const std::string& role,
          int attempt,
          const std::vector<RankSpec>& ranks,
          int out = STDOUT_FILENO,
          int err = STDERR_FILENO);
  LogPump(const LogPump&) = delete;
  LogPump& operator=(const LogPump&) = delete;

  /// What the i-th rank writes to as its stream 1 (stdout) or 2; closed by close_child_ends, which
  /// is to be called once all ranks have been started.
  int child_end(std::size_t i, int stream) const { return pipe(i, stream).write.get(); }
  void close_child_ends();
  /// Every descriptor in here: a forked rank closes them.
  std::vector<int> fds() const;

  /// An epoll descriptor: readable when turn() has something to do.
  int fd() const noexcept { return epoll_.get(); }
  /// Does what can be done now.
  void turn(Clock::time_point now = Clock::now());
  /// When turn() is to be called whether or not fd() is readable.
  std::optional<Clock::time_point> deadline() const;

  /// The i-th rank's process has been reaped. What it has written is still read; what others write
  /// to its pipes, for 0.5 s.
  void rank_ended(std::size_t i, Clock::time_point now = Clock::now());
  /// All pipes are closed, and everything is on the console: then the job may end.
  bool idle() const;
  /// For when it is to end although nobody reads the console.
  void give_up_console();

  /// Where LogOptions::directory points, or the temporary one; empty without files. Give it to the
  /// next attempt, which would make another temporary one.
  const std::string& directory() const noexcept { return directory_; }
  std::vector<std::string> files(std::size_t i) const;
  /// The last lines that the i-th rank wrote, from both streams: any bytes.
  std::string tail(std::size_t i) const { return ranks_[i].tail.last(tail_lines_); }
  /// What was lost, and who held a pipe open: a line each.
  std::vector<std::string> notes() const;

private:
  struct Pipe {
    Fd read;
    Fd write;
    std::optional<LogFile> file;
    Console* console = nullptr;
    std::optional<LineWriter> lines;        // else the console gets the bytes as they come
    bool paused = false;                    // not watched, since the console is full
    bool ended = false;                     // its rank has
    std::uint64_t owed_bytes = 0;           // were in the pipe when its rank ended
    std::optional<Clock::time_point> limit; // then it is closed
  };
  struct Rank {
    int rank;
    std::array<Pipe, 2> pipes;
    Tail tail;
  };

  const Pipe& pipe(std::size_t i, int stream) const {
    return ranks_[i].pipes.at(static_cast<std::size_t>(stream) - 1);
  }
  void open_consoles(int out, int err);
  void add_rank(const LogPlan& plan, const LogOptions& options, const RankSpec& spec, int attempt);
  void open_pipe(Rank& rank, std::size_t stream);
  bool must_wait(const Pipe& pipe) const;
  bool read_some(Rank& rank, std::size_t stream, Clock::time_point now);
  bool take(Rank& rank, std::size_t stream, Clock::time_point now);
  void show(Pipe& pipe, std::string_view bytes, Clock::time_point now);
  template <class F>
  void with_lines(Pipe& pipe, F change);
  void split_longest(Clock::time_point now);
  void close_pipe(Pipe& pipe);
  void limit_time(Pipe& pipe, Clock::time_point now);
  void pass_limit(Rank& rank, Clock::time_point now);
  void on_time(Clock::time_point now);
  void flush(std::size_t k);
  void flush_consoles();
  void resume_pipes();
  bool is_used(const Console& console) const;
  void watch(int fd, std::uint64_t tag, std::uint32_t events);
  void unwatch(int fd) noexcept;

  std::vector<std::unique_ptr<Console>> consoles_; // one, if stdout and stderr are the same
  std::vector<bool> watched_;                      // consoles, since they are blocked
  Fd epoll_;
  std::vector<Rank> ranks_;
  bool drop_when_full_;
  int tail_lines_;
  std::string directory_;
  std::size_t unfinished_bytes_ = 0; // of all LineWriters
  std::vector<char> buffer_;
  std::vector<std::string> notes_;
};

} // namespace muster::process
