#pragma once

#include <string>

namespace muster::process {

/// What a rank is born with, as its own descriptors.
struct RankFds {
  int control = -1;
  int arguments = -1;
  int page = -1;
  int result = -1;
};

/// How the rank came to be: an exec'd one got its environment and directory already.
enum class Birth { executed, forked, from_server };

/// Does the work of a rank and ends the process by _exit.
[[noreturn]] void run_rank(RankFds fds, Birth birth) noexcept;

/// Looks up, once in the launcher, what every rank forked from it would look up again.
void prepare_for_ranks() noexcept;

/// The variable that tells an executed program that it is a rank: its descriptors, comma separated.
inline constexpr const char* channel_variable = "MUSTER_CHANNEL";
/// A job's token, in the environment of its ranks and of whatever they start.
inline constexpr const char* job_variable = "MUSTER_JOB";

/// "control,arguments,page,result"
std::string to_variable(const RankFds& fds);
/// The reverse. Throws UsageError.
RankFds fds_from_variable(const std::string& text);

/// True in a process that is a rank.
bool is_rank() noexcept;

} // namespace muster::process
