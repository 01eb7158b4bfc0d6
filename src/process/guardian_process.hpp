#pragma once

#include <cstdint>

#include <sys/types.h>

namespace muster::process {

/// What the launcher, and children of it, write to the guardian.
struct GuardianCommand {
  enum Kind : std::int32_t {
    begin_job, ///< with descriptors: arguments, page, directory
    make_rank, ///< with descriptors: control, result, input, output, error; answered by a pid or a
               ///< negative errno
    end_job,
    watch,
    unwatch,
    leave, ///< the launcher lets go of this guardian
  };
  static constexpr std::size_t most_fds = 5;

  std::int32_t kind;
  std::int32_t pid;
};

struct GuardianStart {
  int socket;
  int launchers_end; // closed here: its end-of-file is a sign
  int launcher_pidfd;
  pid_t launcher;
  bool can_fork;
};

/// The life of the guardian process. Uses only async-signal-safe calls, so that it may start as a
/// raw clone of a process with threads; ranks it makes return from it into run_rank.
[[noreturn]] void be_guardian(GuardianStart start) noexcept;

} // namespace muster::process
