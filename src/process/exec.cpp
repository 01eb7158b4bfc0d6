#include "exec.hpp"

#include <muster/launch/error.hpp>

#include <algorithm>
#include <cerrno>
#include <set>

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "executable.hpp"
#include "guardian.hpp"
#include "memory_policy.hpp"
#include "newborn.hpp"
#include "pidfd.hpp"
#include "program.hpp"
#include "sys.hpp"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#endif

#ifdef __SANITIZE_THREAD__
// The sanitizer takes every clone for a fork: after one of a child that shares our memory it no
// longer watches this thread, and refuses new ones. glibc's other name for it goes past that.
extern "C" decltype(clone) __clone;
#define clone __clone
#endif

namespace muster::process {

namespace {

constexpr std::size_t stack_bytes = 64 * 1024;
constexpr const char* exec_step = "exec";

class ExecFailure : public SystemError {
public:
  ExecFailure(const std::string& text, int error) : SystemError(Whole{text}, error) {}
};

/// The stack of a child that shares our memory until it execs.
class ChildStack {
public:
  ChildStack()
      : base_(::mmap(nullptr,
                     stack_bytes,
                     PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK,
                     -1,
                     0)) {
    if (base_ == MAP_FAILED)
      throw SystemError("mapping a stack for the child", errno);
  }
  ChildStack(const ChildStack&) = delete;
  ChildStack& operator=(const ChildStack&) = delete;
  ~ChildStack() {
#ifdef __SANITIZE_ADDRESS__
    // The child's frames never returned: what is mapped here next would seem to be their margins.
    ASAN_UNPOISON_MEMORY_REGION(base_, stack_bytes);
#endif
    ::munmap(base_, stack_bytes);
  }
  void* top() const { return static_cast<char*>(base_) + stack_bytes; }

private:
  void* base_;
};

std::string name_of(const std::string& variable) {
  return variable.substr(0, variable.find('=', 1));
}

/// The launcher's environment, with `added` in place of variables of the same name.
std::vector<std::string> merged_environment(const std::vector<std::string>& added) {
  std::set<std::string> names;
  for (const std::string& variable : added)
    names.insert(name_of(variable));
  std::vector<std::string> all = added;
  for (char** variable = ::environ; variable && *variable; ++variable)
    if (!names.contains(name_of(*variable)))
      all.emplace_back(*variable);
  return all;
}

std::vector<char*> pointers(const std::vector<std::string>& strings) {
  std::vector<char*> all;
  for (const std::string& string : strings)
    all.push_back(const_cast<char*>(string.c_str()));
  all.push_back(nullptr);
  return all;
}

} // namespace

std::vector<std::uint64_t> bit_mask(const std::vector<int>& numbers) {
  std::vector<std::uint64_t> mask;
  for (const int number : numbers) {
    const auto word = static_cast<std::size_t>(number) / 64;
    mask.resize(std::max(mask.size(), word + 1));
    mask[word] |= std::uint64_t{1} << (number % 64);
  }
  return mask;
}

std::vector<int> allowed_cpus() {
  std::vector<std::uint64_t> mask(1024 / 64);
  while (::sched_getaffinity(0, mask.size() * 8, reinterpret_cast<cpu_set_t*>(mask.data())) != 0 &&
         errno == EINVAL && mask.size() < 4096)
    mask.resize(mask.size() * 2);
  std::vector<int> cpus;
  for (std::size_t cpu = 0; cpu < mask.size() * 64; ++cpu)
    if ((mask[cpu / 64] >> (cpu % 64) & 1) != 0)
      cpus.push_back(static_cast<int>(cpu));
  return cpus;
}

ExecPlan::ExecPlan(const ExecTarget& target,
                   const RankSpec& spec,
                   const std::vector<std::string>& environment,
                   RankFds fds,
                   StandardFds standard,
                   int guardian_socket)
    : target_(target),
      fds_(fds),
      standard_(standard),
      guardian_socket_(guardian_socket),
      launcher_(::getpid()),
      cwd_(spec.cwd),
      cpus_(bit_mask(spec.cpus)),
      memory_nodes_(bit_mask(spec.memory_nodes)),
      environment_(environment) {
  environment_.push_back(std::string(channel_variable) + "=" + to_variable(fds));
  environment_ = merged_environment(environment_);
  envp_ = pointers(environment_);
  argv_ = pointers(target.argv);
}

int ExecPlan::failed(const char* step) const noexcept {
  error_ = errno;
  failed_step_ = step;
  return 127;
}

int ExecPlan::run_child() const noexcept {
  leave_launchers_group(launcher_);
  Guardian::tell(guardian_socket_, ::getpid(), true);
  reset_signals();
  if (::dup2(standard_.input, STDIN_FILENO) < 0 || ::dup2(standard_.output, STDOUT_FILENO) < 0 ||
      ::dup2(standard_.error, STDERR_FILENO) < 0)
    return failed("redirecting its standard streams");
  ::syscall(SYS_close_range, 3, ~0U, 4 /* CLOSE_RANGE_CLOEXEC */);
  for (const int fd : {fds_.control, fds_.page, fds_.arguments, fds_.result, fds_.assignment})
    if (fd >= 0 && ::fcntl(fd, F_SETFD, 0) != 0)
      return failed("passing on descriptors");
  if (!cwd_.empty() && ::chdir(cwd_.c_str()) != 0)
    return failed("changing to its working directory");
  if (!cpus_.empty() && ::syscall(SYS_sched_setaffinity, 0, cpus_.size() * 8, cpus_.data()) != 0)
    return failed("binding it to its CPUs");
  apply_memory_policy(memory_nodes_.data(), memory_nodes_.size() * 64);
  if (target_.path.empty())
    ::syscall(
        SYS_execveat, Program::get()->executable(), "", argv_.data(), envp_.data(), AT_EMPTY_PATH);
  else
    ::execve(target_.path.c_str(), argv_.data(), envp_.data());
  return failed(exec_step);
}

pid_t ExecPlan::start() const {
  const ChildStack stack;
  const SignalsBlocked blocked;
  int pidfd = -1;
  const auto child = [](void* plan) { return static_cast<const ExecPlan*>(plan)->run_child(); };
  const pid_t pid = sys::checked("clone", [&] {
    return ::clone(child,
                   stack.top(),
                   CLONE_VM | CLONE_VFORK | CLONE_PIDFD | SIGCHLD,
                   const_cast<ExecPlan*>(this),
                   &pidfd);
  });
  const Fd owned(pidfd);
  if (failed_step_ == nullptr)
    return pid;
  wait_for_end(pidfd);
  if (failed_step_ != exec_step)
    throw SystemError(failed_step_, error_);
  throw ExecFailure(explain_exec_error(target_.path.empty() ? "this program" : target_.path,
                                       error_,
                                       exec_sizes(target_.argv, environment_)),
                    error_);
}

} // namespace muster::process
