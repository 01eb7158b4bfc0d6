#pragma once

#include <muster/launch/task.hpp>

#include <string>
#include <vector>

#include <sched.h>

#include "rank.hpp"

namespace muster::process {

/// What a rank executes.
struct ExecTarget {
  std::string path = {}; // empty: the file of this program, which cannot change while it runs
  std::vector<std::string> argv = {};
};

/// What becomes a rank's descriptors 0, 1 and 2.
struct StandardFds {
  int input = -1;
  int output = -1;
  int error = -1;
};

/// Everything a child needs between clone and exec, made before it exists. The child only makes
/// async-signal-safe calls on it.
class ExecPlan {
public:
  ExecPlan(const ExecTarget& target,
           const RankSpec& spec,
           const std::vector<std::string>& environment,
           RankFds fds,
           StandardFds standard,
           int guardian_socket);
  ExecPlan(const ExecPlan&) = delete;
  ExecPlan& operator=(const ExecPlan&) = delete;

  /// The new process's pid. Throws SystemError that says which step failed.
  pid_t start() const;

private:
  int run_child() const noexcept;
  int failed(const char* step) const noexcept;

  const ExecTarget& target_;
  RankFds fds_;
  StandardFds standard_;
  int guardian_socket_;
  pid_t launcher_;
  std::string cwd_;
  std::vector<std::uint64_t> cpus_; // a cpu_set_t of any size
  std::vector<std::uint64_t> memory_nodes_;
  std::vector<std::string> environment_;
  std::vector<char*> envp_;
  std::vector<char*> argv_;
  mutable const char* failed_step_ = nullptr; // written by the child, which shares our memory
  mutable int error_ = 0;
};

/// CPUs the calling thread may run on.
std::vector<int> allowed_cpus();

/// The numbers as bits, in as many words as they need: a cpu_set_t, or a mask of NUMA nodes.
std::vector<std::uint64_t> bit_mask(const std::vector<int>& numbers);

} // namespace muster::process
