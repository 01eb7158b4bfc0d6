#include "birth.hpp"

#include <muster/launch/error.hpp>

#include <cerrno>
#include <cstdio>
#include <memory>

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "exec.hpp"
#include "fault.hpp"
#include "guardian.hpp"
#include "newborn.hpp"
#include "pidfd.hpp"
#include "program.hpp"
#include "sweep.hpp"
#include "sys.hpp"

namespace muster::process {

namespace {

/// One rank while it is being born: both ends of everything.
struct Cradle {
  Channel channel = {};
  Blob result = {};
  Blob assignment = {};
  Fd input = {};
  StandardFds streams = {};
};

Cradle make_cradle(const BirthPlan& plan, std::size_t i, const std::string& packed_job) {
  const RankSpec& spec = plan.task.ranks[i];
  Cradle cradle{.channel = Channel::create()};
  if (plan.job.part != Part::program)
    cradle.result = Blob::create("muster-result");
  cradle.streams = plan.streams[i];
  if (cradle.streams.input < 0) {
    cradle.input = Fd(sys::checked("opening the rank's standard input " + spec.input, [&] {
      return ::open(spec.input.c_str(), O_RDONLY | O_CLOEXEC);
    }));
    cradle.streams.input = cradle.input.get();
  }
  if (plan.job.part != Part::function) {
    // Not by the channel: what its program starts may read it as well.
    cradle.assignment =
        encode("muster-assignment", Assignment{plan.job, spec, plan.environments[i]});
    return cradle;
  }
  const std::string assignment = packed_job + pack(spec, plan.environments[i]);
  if (send_message(cradle.channel.launcher.get(), Kind::assignment, assignment, false) != Sent::yes)
    throw SystemError("handing the rank its assignment", errno);
  return cradle;
}

ino_t inode_of(int fd) {
  struct stat info {};
  ::fstat(fd, &info);
  return info.st_ino;
}

/// Kills and reaps what was started when not everything could be.
class AllOrNothing {
public:
  AllOrNothing(std::shared_ptr<Guardian> guardian, const std::string& token)
      : guardian_(std::move(guardian)), token_(token) {}
  AllOrNothing(const AllOrNothing&) = delete;
  AllOrNothing& operator=(const AllOrNothing&) = delete;
  ~AllOrNothing() {
    for (const pid_t pid : pids_) {
      ::kill(-pid, SIGKILL);
      ::kill(pid, SIGKILL);
    }
    for (const pid_t pid : pids_) {
      guardian_->unwatch(pid);
      siginfo_t info;
      while (::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | __WALL) != 0 &&
             errno == EINTR)
        ;
    }
    if (!kept_) // a fork server that died may not have told of every rank it made
      orphans_.run(token_, channels_, pids_);
  }

  void expect(ino_t channel) { channels_.push_back(channel); }
  void add(pid_t pid) { pids_.push_back(pid); }
  void keep() {
    pids_.clear();
    kept_ = true;
  }
  const std::vector<pid_t>& pids() const { return pids_; }

private:
  std::shared_ptr<Guardian> guardian_;
  const std::string& token_;
  OrphanSweep orphans_;
  std::vector<ino_t> channels_;
  std::vector<pid_t> pids_;
  bool kept_ = false;
};

void close_launchers_side(const BirthPlan& plan,
                          const std::vector<Cradle>& cradles,
                          std::size_t own) {
  for (const int fd : plan.launcher_fds)
    ::close(fd);
  for (std::size_t i = 0; i < cradles.size(); ++i) {
    ::close(cradles[i].channel.launcher.get());
    ::close(cradles[i].input.get());
    if (i == own)
      continue;
    ::close(cradles[i].channel.rank.get());
    ::close(cradles[i].result.fd());
  }
}

/// The encoded arguments of the function, or -1.
int arguments_of(const Task& task) {
  const Work* work = std::get_if<Work>(&task.work);
  return work ? work->arguments.fd() : -1;
}

RankFds fds_of(const BirthPlan& plan, const Cradle& cradle) {
  return {.control = cradle.channel.rank.get(),
          .page = plan.page.fd(),
          .arguments = arguments_of(plan.task),
          .result = cradle.result.fd(),
          .assignment = cradle.assignment.fd()};
}

pid_t fork_rank(const BirthPlan& plan,
                const std::vector<Cradle>& cradles,
                std::size_t i,
                const Guardian& guardian) {
  const pid_t launcher = ::getpid();
  const SignalsBlocked blocked;
  const pid_t pid = sys::checked("fork", [] { return ::fork(); });
  if (pid != 0)
    return pid;
  leave_launchers_group(launcher);
  guardian.watch(::getpid());
  ::dup2(cradles[i].streams.input, STDIN_FILENO);
  ::dup2(cradles[i].streams.output, STDOUT_FILENO);
  ::dup2(cradles[i].streams.error, STDERR_FILENO);
  close_launchers_side(plan, cradles, i);
  Program::get()->abandon();
  reset_signals();
  run_rank(fds_of(plan, cradles[i]), Birth::forked);
}

pid_t start_one(const BirthPlan& plan,
                const std::vector<Cradle>& cradles,
                std::size_t i,
                const Guardian& guardian) {
  fault_point("launcher-start", plan.task.ranks[i].rank);
  if (plan.method == StartMethod::fork)
    return fork_rank(plan, cradles, i, guardian);
  const ExecPlan exec(plan.targets[i],
                      plan.task.ranks[i],
                      plan.environments[i],
                      fds_of(plan, cradles[i]),
                      cradles[i].streams,
                      guardian.socket());
  return exec.start();
}

void start_by_server(const BirthPlan& plan,
                     const std::vector<Cradle>& cradles,
                     Guardian& server,
                     AllOrNothing& started) {
  const Fd directory(sys::checked("opening the working directory",
                                  [] { return ::open(".", O_PATH | O_DIRECTORY | O_CLOEXEC); }));
  std::vector<Guardian::Rank> ranks;
  for (const Cradle& cradle : cradles)
    ranks.push_back({cradle.channel.rank.get(),
                     cradle.result.fd(),
                     cradle.streams.input,
                     cradle.streams.output,
                     cradle.streams.error});
  int error = 0;
  const auto pids =
      server.fork_ranks({arguments_of(plan.task), plan.page.fd(), directory.get()}, ranks, error);
  for (const pid_t pid : pids)
    started.add(pid);
  if (pids.size() < ranks.size())
    throw SystemError("the fork server making the rank", error);
}

/// Runs `step` for one rank; what the system refuses becomes a SpawnFailure that names the rank.
template <class F>
void for_rank(int rank, F step) {
  try {
    step();
  } catch (const SystemError& error) {
    throw SpawnFailure(rank, error);
  }
}

} // namespace

std::vector<Child> start_ranks(const BirthPlan& plan) {
  const auto& ranks = plan.task.ranks;
  const bool by_server = plan.method == StartMethod::forkserver;
  const auto guardian = by_server ? Program::get()->fork_server() : Program::get()->guardian();
  const std::string packed_job = pack(plan.job);
  std::vector<Cradle> cradles;
  AllOrNothing started(guardian, plan.token);
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    for_rank(ranks[i].rank, [&] { cradles.push_back(make_cradle(plan, i, packed_job)); });
    started.expect(inode_of(cradles[i].channel.rank.get()));
  }
  std::fflush(nullptr); // or forked ranks would print it again
  if (by_server) {
    const auto next = [&] { return ranks[std::min(started.pids().size(), ranks.size() - 1)].rank; };
    try {
      start_by_server(plan, cradles, *guardian, started);
    } catch (const SystemError& error) {
      throw SpawnFailure(next(), error);
    }
  } else {
    for (std::size_t i = 0; i < ranks.size(); ++i)
      for_rank(ranks[i].rank, [&] { started.add(start_one(plan, cradles, i, *guardian)); });
  }
  std::vector<Child> children(ranks.size());
  for (std::size_t i = 0; i < ranks.size(); ++i)
    for_rank(ranks[i].rank, [&] {
      const pid_t pid = started.pids()[i];
      ::setpgid(pid, pid); // the rank does so too; whoever comes first
      children[i] = {pid,
                     Fd(sys::checked("pidfd_open", [&] { return pidfd_open(pid); })),
                     std::move(cradles[i].channel.launcher),
                     inode_of(cradles[i].channel.rank.get()),
                     cradles[i].result};
    });
  started.keep();
  return children;
}

ProcessState process_state() {
  ProcessState state;
  for (char** variable = ::environ; variable && *variable; ++variable)
    state.environment.emplace_back(*variable);
  state.umask = ::umask(0);
  ::umask(static_cast<mode_t>(state.umask));
  state.niceness = ::getpriority(PRIO_PROCESS, 0);
  for (int i = 0; i < RLIMIT_NLIMITS; ++i) {
    rlimit limit{};
    ::getrlimit(static_cast<__rlimit_resource>(i), &limit);
    state.limits.push_back({limit.rlim_cur, limit.rlim_max});
  }
  state.cpus = allowed_cpus();
  return state;
}

} // namespace muster::process
