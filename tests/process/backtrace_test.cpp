// What a crash leaves with the launcher, and stacks of processes that live.
#include <csignal>
#include <fstream>
#include <sstream>

#include <fcntl.h>
#include <spawn.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fmt/format.h>

#include "process/channel.hpp"
#include "process/crash.hpp"
#include "process/stack_of.hpp"
#include "process/symbolize.hpp"
#include "ranks.hpp"

using muster::process::Crash;
using muster::process::CrashRecord;
using muster::process::stack_of;

namespace {

constexpr int channel_fd = 3;

/// "function(int) at FILE:LINE", by the comment that marks the line.
std::string at(const std::string& function, const std::string& mark) {
  std::ifstream source(MUSTER_CRASH_SOURCE);
  std::string text;
  for (int line = 1; std::getline(source, text); ++line)
    if (text.ends_with("// here: " + mark))
      return fmt::format("{} at {}:{} ", function, MUSTER_CRASH_SOURCE, line);
  throw std::logic_error("no line is marked " + mark);
}

/// True if the texts come in this order, each on a later line.
bool has_in_order(const std::string& text, const std::vector<std::string>& parts) {
  std::size_t from = 0;
  for (const std::string& part : parts) {
    const auto found = text.find(part, from);
    if (found == std::string::npos)
      return false;
    from = text.find('\n', found);
  }
  return true;
}

/// The crash program in one of its modes.
class Crasher {
public:
  explicit Crasher(const char* mode) : channel_(muster::process::Channel::create()) {
    REQUIRE(::chdir("/") == 0); // so that files have their full names
    rlimit core{};
    ::getrlimit(RLIMIT_CORE, &core);
    core.rlim_cur = 0; // and none is left there
    REQUIRE(::setrlimit(RLIMIT_CORE, &core) == 0);
    const timeval limit{30, 0};
    ::setsockopt(channel_.launcher.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    int in[2];
    int out[2];
    REQUIRE(::pipe2(in, O_CLOEXEC) == 0);
    REQUIRE(::pipe2(out, O_CLOEXEC) == 0);
    input_ = muster::process::Fd(in[1]);
    output_ = muster::process::Fd(out[0]);
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_adddup2(&actions, in[0], STDIN_FILENO);
    ::posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
    ::posix_spawn_file_actions_adddup2(&actions, channel_.rank.get(), channel_fd);
    const std::string channel = std::to_string(channel_fd);
    const char* argv[] = {MUSTER_CRASH, channel.c_str(), mode, nullptr};
    // Their own handlers would have the signals, and no other disposition would be the default.
    std::string sanitizers[] = {options("ASAN_OPTIONS"), options("TSAN_OPTIONS")};
    char* envp[] = {sanitizers[0].data(), sanitizers[1].data(), nullptr};
    REQUIRE(::posix_spawn(&pid_, MUSTER_CRASH, &actions, nullptr, const_cast<char**>(argv), envp) ==
            0);
    ::posix_spawn_file_actions_destroy(&actions);
    ::close(in[0]);
    ::close(out[1]);
    channel_.rank.reset();
  }
  Crasher(const Crasher&) = delete;
  Crasher& operator=(const Crasher&) = delete;
  ~Crasher() {
    if (pid_ > 0) {
      ::kill(pid_, SIGKILL);
      wait();
    }
  }

  pid_t pid() const { return pid_; }
  /// What it told before its end; nullopt: nothing.
  std::optional<Crash> crash() {
    bool closed = false;
    const auto message = muster::process::receive_message(channel_.launcher.get(), true, closed);
    if (!message)
      return std::nullopt;
    REQUIRE(message->kind == muster::process::Kind::crash);
    return muster::process::to_crash(message->body);
  }
  void until_it_waits() const {
    char text[8];
    REQUIRE(::read(output_.get(), text, sizeof text) == sizeof text); // "waiting\n"
  }
  void go_on() { input_.reset(); }
  /// Its exit code, or 128 + signal.
  int wait() {
    int status = 0;
    ::waitpid(std::exchange(pid_, -1), &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

private:
  static std::string options(const char* variable) {
    const char* before = std::getenv(variable);
    return fmt::format("{}={}:handle_segv=0:handle_sigbus=0:handle_sigill=0:handle_sigfpe=0:"
                       "handle_abort=0:use_sigaltstack=0:detect_leaks=0",
                       variable,
                       before ? before : "");
  }

  muster::process::Channel channel_;
  muster::process::Fd input_;
  muster::process::Fd output_;
  pid_t pid_ = -1;
};

struct Seen {
  CrashRecord record;
  std::string stack;
};

/// Lets the program crash in this mode, by this signal.
Seen crash(const char* mode, int signal) {
  Crasher crasher(mode);
  const auto crash = crasher.crash();
  CHECK(crasher.wait() == 128 + signal);
  REQUIRE(crash);
  CHECK(crash->record.signal == signal);
  CHECK_FALSE(crasher.crash());
  return {crash->record, symbolize(crash->record, crash->maps)};
}

const std::string start = at("main", "main");

/// Looks at a process until its stack has these parts; returns what was seen last.
std::string stack_with(pid_t pid, const std::vector<std::string>& parts) {
  std::string stack;
  CHECK(test::eventually([&] { return has_in_order(stack = stack_of(pid), parts); }));
  return stack;
}

/// The state of a process as in /proc/PID/stat.
char state_of(pid_t pid) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  std::string text;
  std::getline(file, text);
  return text.at(text.rfind(')') + 2);
}

} // namespace

TEST_CASE("a write through a null pointer is told with functions and lines", "[backtrace]") {
  const auto [record, stack] = crash("null_pointer", SIGSEGV);
  INFO(stack);
  CHECK(record.address == 0);
  CHECK(record.thread > 0);
  CHECK(has_in_order(
      stack,
      {at("write_to(int volatile*)", "write"), at("null_pointer()", "null_pointer"), start}));
  CHECK_THAT(stack, Catch::StartsWith("#0 0x"));
  CHECK(stack.find("write_to") < stack.find("#1 "));
  CHECK_THAT(stack, Catch::Contains(fmt::format(" (in {}+0x", MUSTER_CRASH)));
  CHECK(circumstances(record) ==
        fmt::format("in thread {} (crash): nothing is mapped at 0x0", record.thread));
}

TEST_CASE("an abort is told with the function that called it", "[backtrace]") {
  const auto [record, stack] = crash("abort", SIGABRT);
  INFO(stack);
  CHECK(has_in_order(stack, {"abort", at("abort_it()", "abort_it"), start}));
}

TEST_CASE("a division by zero is told as one", "[backtrace]") {
  const auto [record, stack] = crash("division", SIGFPE);
  INFO(stack);
  CHECK(has_in_order(stack, {at("divide_by(int)", "divide"), at("division()", "division"), start}));
  CHECK_THAT(circumstances(record), Catch::EndsWith(": integer division by zero"));
}

TEST_CASE("a stack overflow is told from the alternate stack", "[backtrace]") {
  const auto [record, stack] = crash("overflow", SIGSEGV);
  INFO(stack);
  CHECK(record.frame_count == CrashRecord::most_frames);
  CHECK(has_in_order(stack, {"#0 ", at("down(int volatile*)", "down"), "and the same 12"}));
}

TEST_CASE("a crash in another thread is told with that thread's name and stack", "[backtrace]") {
  const auto [record, stack] = crash("in_thread", SIGSEGV);
  INFO(stack);
  CHECK(std::string(record.thread_name) == "second");
  CHECK(has_in_order(
      stack, {at("write_to(int volatile*)", "write"), at("thread_function()", "thread_function")}));
}

TEST_CASE("of threads that crash at once one is told", "[backtrace]") {
  const auto [record, stack] = crash("together", SIGSEGV);
  INFO(stack);
  CHECK(has_in_order(
      stack, {at("write_to(int volatile*)", "write"), at("null_pointer()", "null_pointer")}));
}

TEST_CASE("a crash in a library without debug information names its function and callers",
          "[backtrace]") {
  const auto [record, stack] = crash("library", SIGSEGV);
  INFO(stack);
  CHECK(has_in_order(stack,
                     {"crash_in_library(int volatile*) (in ", at("library()", "library"), start}));
  CHECK(stack.find("libcrash_library.so+0x") < stack.find("#1 "));
}

TEST_CASE("a call of a null function pointer is told with its caller", "[backtrace]") {
  const auto [record, stack] = crash("no_function", SIGSEGV);
  INFO(stack);
  CHECK_THAT(stack, Catch::StartsWith("#0 0x0 in no module\n#1 "));
  CHECK(has_in_order(stack, {at("no_function()", "no_function"), start}));
}

TEST_CASE("inlined functions have lines of their own", "[backtrace]") {
  const auto [record, stack] = crash("inlined", SIGSEGV);
  INFO(stack);
  CHECK(has_in_order(stack,
                     {at("inlined_write(int volatile*)", "inlined_write") + "(inlined)",
                      at("inlined_call(int volatile*)", "inlined_call") + "(inlined)",
                      at("inlined()", "inlined"),
                      start}));
}

// A thread sanitizer blocks all signals while a handler runs.
#ifndef __SANITIZE_THREAD__
TEST_CASE("a stack that cannot be followed is told by its first frame", "[backtrace]") {
  const auto [record, stack] = crash("broken_stack", SIGSEGV);
  INFO(stack);
  CHECK(record.frame_count == 1);
  CHECK_THAT(stack,
             Catch::StartsWith("#0 ") && Catch::Contains(at("broken_stack()", "broken_stack")));
}
#endif

TEST_CASE("a signal that somebody sent is told, too", "[backtrace]") {
  const auto [record, stack] = crash("sent", SIGSEGV);
  CHECK(record.address == 0);
  CHECK_THAT(stack, Catch::Contains("sent() at "));
}

TEST_CASE("a handler that was there is left alone", "[backtrace]") {
  Crasher crasher("own_handler");
  CHECK_FALSE(crasher.crash());
  CHECK(crasher.wait() == 7);
}

TEST_CASE("a crash of a child that a rank forked is not the rank's", "[backtrace]") {
  Crasher crasher("in_child");
  CHECK_FALSE(crasher.crash());
  CHECK(crasher.wait() == SIGSEGV);
}

TEST_CASE("a launcher that does not read holds nobody back from dying", "[backtrace]") {
  Crasher crasher("full_channel");
  CHECK(crasher.wait() == 128 + SIGSEGV);
}

TEST_CASE("what lies in modules that are gone is told by its offset", "[backtrace]") {
  CrashRecord record;
  record.frame_count = 3;
  record.frames[0] = 0x7f0000000123;
  record.frames[1] = 0x7f0000000457;
  record.frames[2] = 0x1000;
  CHECK(symbolize(record,
                  "7f0000000000-7f0000001000 r-xp 00000000 08:01 1234 /nowhere/libgone.so\n") ==
        "#0 0x7f0000000123 in /nowhere/libgone.so+0x123\n"
        "#1 0x7f0000000456 in /nowhere/libgone.so+0x456\n"
        "#2 0xfff in no module\n");
  CHECK(symbolize(record, "") == "#0 0x7f0000000123 in no module\n"
                                 "#1 0x7f0000000456 in no module\n"
                                 "#2 0xfff in no module\n");
}

TEST_CASE("a message that is no crash record is refused", "[backtrace]") {
  CHECK_FALSE(muster::process::to_crash("half a record"));
  CrashRecord record;
  record.frame_count = CrashRecord::most_frames + 1;
  CHECK_FALSE(muster::process::to_crash({reinterpret_cast<const char*>(&record), sizeof record}));
}

TEST_CASE("the stack of a process that waits is told, and the process goes on", "[backtrace]") {
  Crasher crasher("wait");
  crasher.until_it_waits();
  const std::string stack = stack_with(crasher.pid(),
                                       {fmt::format("thread {} (crash):", crasher.pid()),
                                        "#0 ",
                                        at("wait_for_input()", "wait_for_input"),
                                        start});
  INFO(stack);
  CHECK(test::eventually([&] { return state_of(crasher.pid()) == 'S'; }));
  crasher.go_on();
  CHECK(crasher.wait() == 0);
}

TEST_CASE("all threads of a process are told, the main thread first", "[backtrace]") {
  Crasher crasher("wait_in_threads");
  crasher.until_it_waits();
  const std::string stack = stack_with(crasher.pid(),
                                       {fmt::format("thread {} (crash):", crasher.pid()),
                                        at("wait_in_threads()", "wait_in_threads"),
                                        "(second):",
                                        at("wait_for_input()", "wait_for_input")});
  INFO(stack);
  crasher.go_on();
  CHECK(crasher.wait() == 3);
}

TEST_CASE("a process that was stopped stays stopped", "[backtrace]") {
  Crasher crasher("wait");
  crasher.until_it_waits();
  ::kill(crasher.pid(), SIGSTOP);
  int status = 0;
  REQUIRE(::waitpid(crasher.pid(), &status, WUNTRACED) == crasher.pid());
  CHECK_THAT(stack_of(crasher.pid()), Catch::Contains(" wait_for_input() at "));
  CHECK(test::eventually([&] { return state_of(crasher.pid()) == 'T'; }));
  ::kill(crasher.pid(), SIGCONT);
  crasher.go_on();
  CHECK(crasher.wait() == 0);
}

TEST_CASE("where tracing is refused the reason is told, and what the kernel says", "[backtrace]") {
  Crasher crasher("wait");
  crasher.until_it_waits();
  REQUIRE(test::eventually([&] { return state_of(crasher.pid()) == 'S'; }));
  REQUIRE(::ptrace(PTRACE_SEIZE, crasher.pid(), nullptr, nullptr) == 0);
  const std::string stack = stack_of(crasher.pid());
  INFO(stack);
  CHECK_THAT(stack,
             Catch::StartsWith(fmt::format("no stack of process {}: process {} is debugging it\n",
                                           crasher.pid(),
                                           ::getpid())));
  CHECK_THAT(stack, Catch::Contains(fmt::format("thread {} (crash): state S", crasher.pid())));
}

TEST_CASE("a process that is gone has no stack", "[backtrace]") {
  Crasher crasher("wait");
  const pid_t pid = crasher.pid();
  crasher.go_on();
  CHECK(crasher.wait() == 0);
  CHECK(stack_of(pid) == fmt::format("no stack of process {}: it is gone", pid));
}
