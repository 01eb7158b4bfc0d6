#pragma once

#include <muster/comm/world.hpp>
#include <muster/launch/task.hpp>

#include <exception>
#include <string>

#include "protocol.hpp"

namespace muster::detail {
struct Call;
}

namespace muster::process {

/// What a rank is born with, as its own descriptors.
struct RankFds {
  int control = -1;
  int page = -1;
  int arguments = -1;  // of a function
  int result = -1;     // of a function
  int assignment = -1; // of a rank whose main goes on; others get it by the control channel
};

/// How the rank came to be: an exec'd one got its environment and directory already.
enum class Birth { executed, forked, from_server };

/// Does the work of a rank and ends the process by _exit.
[[noreturn]] void run_rank(RankFds fds, Birth birth) noexcept;

/// Becomes a rank whose main goes on. Throws UsageError if the rank already is another process.
void join_job(RankFds fds);

/// The world of this process, if its main went on and it is not inside of a launch; else nullptr.
const World* joined_world() noexcept;
/// Part::function in a process that has not joined a job.
Part joined_part() noexcept;

/// In a rank that joined for this launch: does the launcher's work and ends the process. Throws
/// UsageError if the launcher's function is not that of `work`.
[[noreturn]] void become_rank(const Work& work);

/// Makes a call for a launch that takes place in this process. In a rank that has joined a job, an
/// exception that leaves it is told to the launcher and ends the process without unwinding, as in
/// every rank; elsewhere it passes.
void call_inside(void (*thunk)(detail::Call&), detail::Call& call);

/// Tells the launcher, if this process has joined a job, what its main is about to end with.
void tell_failure(const std::exception& error) noexcept;

/// Looks up, once in the launcher, what every rank forked from it would look up again.
void prepare_for_ranks() noexcept;

/// The variable that tells an executed program that it is a rank: its descriptors, comma separated.
inline constexpr const char* channel_variable = "MUSTER_CHANNEL";
/// A job's token, in the environment of its ranks and of whatever they start.
inline constexpr const char* job_variable = "MUSTER_JOB";

/// "control,page,arguments,result,assignment", -1 for none.
std::string to_variable(const RankFds& fds);
/// The reverse. Throws UsageError.
RankFds fds_from_variable(const std::string& text);

/// True in a process that is a rank.
bool is_rank() noexcept;

} // namespace muster::process
