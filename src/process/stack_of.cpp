#include "stack_of.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <future>
#include <sstream>
#include <system_error>
#include <vector>

#include <dirent.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <elfutils/libdwfl.h>
#include <fmt/format.h>

#include "pidfd.hpp"
#include "symbolize.hpp"

namespace muster::process {

namespace {

using Clock = Symbolizer::Clock;

constexpr std::chrono::seconds time_limit{2};
constexpr std::chrono::milliseconds stop_limit{300}; // for one thread to stop
constexpr std::size_t most_threads = 5;
constexpr std::size_t most_frames = 64;

std::string contents(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  std::string all = text.str();
  all.erase(std::find_if(all.rbegin(), all.rend(), [](char c) { return c != '\n'; }).base(),
            all.end());
  return all;
}

/// A thread of another process, by what /proc says of it.
class Task {
public:
  Task(pid_t pid, pid_t thread)
      : thread_(thread), folder_(fmt::format("/proc/{}/task/{}/", pid, thread)) {}

  pid_t id() const noexcept { return thread_; }
  std::string name() const { return contents(folder_ + "comm"); }
  /// R, S, D, T, t, Z, X; '?' of one that is gone.
  char state() const {
    const std::string stat = contents(folder_ + "stat");
    const auto end = stat.rfind(')');
    return end + 2 < stat.size() ? stat[end + 2] : '?';
  }
  bool waits_for_a_lock() const { return system_call() == std::to_string(SYS_futex); }
  /// "state S, in futex_wait_queue, system call 202", as far as it can be read.
  std::string what_the_kernel_says() const {
    std::string text = fmt::format("state {}", state());
    const std::string function = contents(folder_ + "wchan");
    if (!function.empty() && function != "0")
      text += ", in the kernel's " + function;
    const std::string call = system_call();
    if (!call.empty() && call != "running")
      text += ", system call " + call;
    return text;
  }

private:
  std::string system_call() const {
    const std::string text = contents(folder_ + "syscall");
    return text.substr(0, text.find(' '));
  }

  pid_t thread_;
  std::string folder_;
};

std::vector<Task> tasks_of(pid_t pid) {
  std::vector<Task> tasks;
  DIR* list = ::opendir(fmt::format("/proc/{}/task", pid).c_str());
  while (const dirent* entry = list ? ::readdir(list) : nullptr)
    if (const int thread = std::atoi(entry->d_name); thread > 0)
      tasks.emplace_back(pid, thread);
  if (list)
    ::closedir(list);
  std::stable_partition(tasks.begin(), tasks.end(), [&](const Task& task) {
    return task.id() == pid || !task.waits_for_a_lock();
  });
  std::stable_partition(
      tasks.begin(), tasks.end(), [&](const Task& task) { return task.id() == pid; });
  return tasks;
}

/// Holds a thread in its place while it lives. What it cannot let go, the kernel does when the
/// thread that traces ends.
class Hold {
public:
  explicit Hold(pid_t thread) : thread_(thread) {
    if (::ptrace(PTRACE_SEIZE, thread, nullptr, nullptr) != 0) {
      error_ = errno;
      return;
    }
    ::ptrace(PTRACE_INTERRUPT, thread, nullptr, nullptr);
    const auto limit = Clock::now() + stop_limit;
    while (!stopped_ && Clock::now() < limit && look())
      ::usleep(100);
  }
  Hold(const Hold&) = delete;
  Hold& operator=(const Hold&) = delete;
  ~Hold() {
    if (stopped_)
      ::ptrace(PTRACE_DETACH, thread_, nullptr, signal_);
  }

  int error() const noexcept { return error_; }
  bool stopped() const noexcept { return stopped_; }

private:
  /// Takes no notice of an end, which is the supervisor's to see. False: no thread is there.
  bool look() {
    siginfo_t info{};
    const int options = WSTOPPED | WNOHANG | __WALL | __WNOTHREAD;
    if (::waitid(P_PID, static_cast<id_t>(thread_), &info, options) != 0)
      return errno == EINTR;
    stopped_ = info.si_pid == thread_;
    const bool about_a_signal = info.si_status >> 8 == 0;
    signal_ = stopped_ && about_a_signal ? info.si_status : 0; // it still has to be delivered
    return true;
  }

  pid_t thread_;
  int error_ = 0;
  bool stopped_ = false;
  long signal_ = 0;
};

struct Unwinding {
  std::vector<Frame> frames;
  Clock::time_point deadline;
};

int add_frame(Dwfl_Frame* state, void* data) {
  auto& unwinding = *static_cast<Unwinding*>(data);
  Dwarf_Addr address = 0;
  bool exact = false;
  if (!::dwfl_frame_pc(state, &address, &exact))
    return DWARF_CB_ABORT;
  unwinding.frames.push_back({address, exact || unwinding.frames.empty()});
  const bool enough = unwinding.frames.size() >= most_frames || Clock::now() >= unwinding.deadline;
  return enough ? DWARF_CB_ABORT : DWARF_CB_OK;
}

std::string refusal(pid_t pid, int error) {
  const std::string status = contents(fmt::format("/proc/{}/status", pid));
  const auto tracer = status.find("TracerPid:\t");
  const int debugger = tracer == std::string::npos ? 0 : std::atoi(status.c_str() + tracer + 11);
  if (debugger > 0)
    return fmt::format("no stack of process {}: process {} is debugging it", pid, debugger);
  const std::string scope = contents("/proc/sys/kernel/yama/ptrace_scope");
  return fmt::format("no stack of process {}: tracing it is refused ({}); kernel.yama.ptrace_scope "
                     "{}; let it be 0, or give CAP_SYS_PTRACE (docker run --cap-add SYS_PTRACE)",
                     pid,
                     std::generic_category().message(error),
                     scope.empty() ? "is not there" : "is " + scope);
}

/// The stacks of one process. Lives in one thread, as tracing belongs to a thread.
class Stacks {
public:
  explicit Stacks(pid_t pid) : pid_(pid), tasks_(tasks_of(pid)), symbolizer_(deadline_) {}

  std::string text() {
    if (tasks_.empty())
      return fmt::format("no stack of process {}: it is gone", pid_);
    symbolizer_.use_process(pid_);
    if (symbolizer_.session())
      ::dwfl_linux_proc_attach(symbolizer_.session(), pid_, true);
    std::string all;
    for (std::size_t i = 0; i < std::min(tasks_.size(), most_threads); ++i)
      all += text_of(tasks_[i]);
    if (tasks_.size() > most_threads)
      all += fmt::format("and {} more threads\n", tasks_.size() - most_threads);
    return refused_ == 0 ? all : refusal(pid_, refused_) + "\n" + all;
  }

private:
  std::string text_of(const Task& task) {
    const std::string head = fmt::format("thread {} ({})", task.id(), task.name());
    const std::vector<Frame> frames = frames_of(task);
    return frames.empty() ? fmt::format("{}: {}\n", head, task.what_the_kernel_says())
                          : fmt::format("{}:\n{}", head, symbolizer_.lines(frames));
  }

  /// Empty for a thread that cannot be stopped now.
  std::vector<Frame> frames_of(const Task& task) {
    Unwinding unwinding{{}, deadline_};
    if (refused_ != 0 || !symbolizer_.session() || task.state() == 'D' || Clock::now() >= deadline_)
      return {};
    const Hold hold(task.id());
    if (hold.error() != 0 && hold.error() != ESRCH)
      refused_ = hold.error();
    if (hold.stopped())
      ::dwfl_getthread_frames(symbolizer_.session(), task.id(), add_frame, &unwinding);
    return unwinding.frames;
  }

  pid_t pid_;
  Clock::time_point deadline_ = Clock::now() + time_limit;
  std::vector<Task> tasks_;
  Symbolizer symbolizer_;
  int refused_ = 0;
};

} // namespace

std::string stack_of(pid_t pid) {
  const SignalsBlocked blocked; // in the new thread, too: the program's signals are not for it
  return std::async(std::launch::async, [=] { return Stacks(pid).text(); }).get();
}

} // namespace muster::process
