#include "crash.hpp"

#include <muster/launch/exit_status.hpp>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <type_traits>

#include <dlfcn.h>
#include <execinfo.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include <fmt/format.h>

#include "channel.hpp"

namespace muster::process {

namespace {

static_assert(std::is_trivially_copyable_v<CrashRecord>);

constexpr int fatal[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGSYS, SIGTRAP};
constexpr int handler_frames = 2; // the handler's own and the kernel's trampoline
constexpr int own_frames = 8;     // the same with what a sanitizer may add
constexpr unsigned most_seconds = 5;
constexpr int send_tries = 10;
constexpr int send_try_ms = 100;

alignas(16) char alternate_stack[64 * 1024];

// Written before the handlers are installed.
int channel = -1;
pid_t reporter = 0;

// Of the first thread in which a fatal signal came. The handler works here, not on a stack that may
// be short.
std::atomic<pid_t> crashed = 0;
siginfo_t cause;
CrashRecord told;
void* trace[CrashRecord::most_frames + own_frames];
volatile bool sending = false;

/// Ends the process by the signal as if nobody had handled it, when the handler returns: then the
/// registers are those of the crash again, and so they are in a core file.
void end_by(int signal, siginfo_t& info) noexcept {
  struct sigaction action {};
  action.sa_handler = SIG_DFL;
  ::sigaction(signal, &action, nullptr);
  sigset_t set;
  ::sigemptyset(&set);
  ::sigaddset(&set, signal);
  ::pthread_sigmask(SIG_BLOCK, &set, nullptr);
  if (::syscall(SYS_rt_tgsigqueueinfo, ::getpid(), ::gettid(), signal, &info) != 0)
    ::syscall(SYS_tgkill, ::getpid(), ::gettid(), signal);
}

void on_too_late(int) { end_by(cause.si_signo, cause); }

void limit_time() noexcept {
  struct sigaction action {};
  action.sa_handler = on_too_late;
  ::sigaction(SIGALRM, &action, nullptr);
  sigset_t set;
  ::sigemptyset(&set);
  ::sigaddset(&set, SIGALRM);
  ::pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
  ::alarm(most_seconds);
}

/// The two registers that say where a thread is in its stack.
struct Position {
#if defined(__x86_64__)
  greg_t pc, sp;
  explicit Position(const ucontext_t& context) noexcept
      : pc(context.uc_mcontext.gregs[REG_RIP]), sp(context.uc_mcontext.gregs[REG_RSP]) {}
  void put_into(ucontext_t& context) const noexcept {
    context.uc_mcontext.gregs[REG_RIP] = pc;
    context.uc_mcontext.gregs[REG_RSP] = sp;
  }
  /// Where a function that has just been called returns to.
  void leave_function(const ucontext_t&) noexcept {
    pc = *reinterpret_cast<const greg_t*>(sp);
    sp += static_cast<greg_t>(sizeof pc);
  }
#elif defined(__aarch64__)
  std::uint64_t pc, sp;
  explicit Position(const ucontext_t& context) noexcept
      : pc(context.uc_mcontext.pc), sp(context.uc_mcontext.sp) {}
  void put_into(ucontext_t& context) const noexcept {
    context.uc_mcontext.pc = pc;
    context.uc_mcontext.sp = sp;
  }
  /// Where a function that has just been called returns to.
  void leave_function(const ucontext_t& context) noexcept { pc = context.uc_mcontext.regs[30]; }
#else
#error "the registers of this processor are not known here: add them"
#endif
  void* address() const noexcept { return reinterpret_cast<void*>(pc); }
};

bool in_a_module(void* address) noexcept {
  dl_find_object found{};
  return ::_dl_find_object(address, &found) == 0;
}

/// Adds the return addresses above `pc`. A fault in here leaves the record as it is.
void add_callers(void* pc) noexcept {
  const int count = ::backtrace(trace, static_cast<int>(std::size(trace)));
  void** const end = trace + count;
  void** first = std::find(trace, end, pc);
  first = first == end ? trace + std::min(count, handler_frames) : first;
  std::uint32_t frames = told.frame_count;
  if (first != end && reinterpret_cast<std::uint64_t>(*first) == told.frames[0])
    ++first;
  for (; first != end && frames < CrashRecord::most_frames; ++first)
    told.frames[frames++] = reinterpret_cast<std::uint64_t>(*first);
  told.frame_count = frames;
}

void fill_record(int signal, const siginfo_t& info, ucontext_t& context) noexcept {
  Position at(context);
  told.signal = signal;
  told.code = info.si_code;
  told.address = info.si_code > 0 ? reinterpret_cast<std::uint64_t>(info.si_addr) : 0;
  told.thread = ::gettid();
  ::prctl(PR_GET_NAME, told.thread_name);
  told.frames[0] = static_cast<std::uint64_t>(at.pc);
  told.frame_count = 1;
  if (info.si_code <= 0 || info.si_addr != at.address() || in_a_module(at.address()))
    return add_callers(at.address());
  // A call to where there is no code, which no unwinder can leave.
  const Position before = at;
  at.leave_function(context);
  if (!in_a_module(at.address()))
    return;
  at.put_into(context);
  add_callers(at.address());
  before.put_into(context);
}

bool write_all(int file, const void* data, std::size_t size) noexcept {
  const char* at = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t written = ::write(file, at, size);
    if (written < 0 && errno != EINTR)
      return false;
    at += std::max<ssize_t>(written, 0);
    size -= static_cast<std::size_t>(std::max<ssize_t>(written, 0));
  }
  return true;
}

void copy_maps(int file) noexcept {
  const int maps = ::open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
  char buffer[4096];
  for (;;) {
    const ssize_t size = ::read(maps, buffer, sizeof buffer);
    if (size < 0 && errno == EINTR)
      continue;
    if (size <= 0 || !write_all(file, buffer, static_cast<std::size_t>(size)))
      return;
  }
}

void send_record() noexcept {
  const int file = ::memfd_create("muster-crash", MFD_CLOEXEC);
  if (file < 0 || !write_all(file, &told, sizeof told))
    return;
  copy_maps(file);
  const char trailer[trailer_bytes] = {};
  write_all(file, trailer, sizeof trailer);
  pollfd ready{channel, POLLOUT, 0};
  for (int i = 0; i < send_tries; ++i) {
    if (send_file(channel, Kind::crash, file, false) != Sent::later)
      return;
    ::poll(&ready, 1, send_try_ms);
  }
}

void on_fatal_signal(int signal, siginfo_t* info, void* context) {
  if (::getpid() != reporter) // a child that the rank forked
    return end_by(signal, *info);
  pid_t nobody = 0;
  if (crashed.compare_exchange_strong(nobody, ::gettid())) {
    cause = *info;
    limit_time();
    fill_record(signal, *info, *static_cast<ucontext_t*>(context));
  } else if (nobody != ::gettid()) {
    for (;;)
      ::pause(); // the first one ends the process
  }
  // Also reached by a fault while following a broken stack, and a last time by one in the sending.
  if (!sending) {
    sending = true;
    send_record();
  }
  end_by(cause.si_signo, cause);
}

void give_alternate_stack() noexcept {
  stack_t before{};
  ::sigaltstack(nullptr, &before);
  if ((before.ss_flags & SS_DISABLE) == 0 && before.ss_size >= sizeof alternate_stack)
    return;
  stack_t stack{};
  stack.ss_sp = alternate_stack;
  stack.ss_size = sizeof alternate_stack;
  ::sigaltstack(&stack, nullptr);
}

std::string reason(const CrashRecord& record) {
  const auto is = [&](int signal, int code) {
    return record.signal == signal && record.code == code;
  };
  const std::string address = fmt::format("{:#x}", record.address);
  if (is(SIGSEGV, SEGV_MAPERR))
    return ": nothing is mapped at " + address;
  if (is(SIGSEGV, SEGV_ACCERR))
    return ": this access is not allowed at " + address;
  if (is(SIGBUS, BUS_ADRERR))
    return ": no memory for " + address + " (a file that was cut, or a full /dev/shm)";
  if (is(SIGFPE, FPE_INTDIV))
    return ": integer division by zero";
  return "";
}

} // namespace

void report_fatal_signals(int control) noexcept {
  channel = control;
  reporter = ::getpid();
  ::backtrace(trace, 1); // it loads the unwinder when it is called first
  give_alternate_stack();
  for (const int signal : fatal) {
    struct sigaction action {};
    ::sigaction(signal, nullptr, &action);
    if (action.sa_handler != SIG_DFL)
      continue;
    action.sa_sigaction = on_fatal_signal;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    ::sigemptyset(&action.sa_mask);
    ::sigaction(signal, &action, nullptr);
  }
}

std::optional<Crash> to_crash(std::string_view body) {
  Crash crash;
  if (body.size() < sizeof crash.record)
    return std::nullopt;
  std::memcpy(&crash.record, body.data(), sizeof crash.record);
  if (crash.record.frame_count > CrashRecord::most_frames)
    return std::nullopt;
  crash.maps = body.substr(sizeof crash.record);
  return crash;
}

std::string circumstances(const CrashRecord& record) {
  const std::size_t length = ::strnlen(record.thread_name, sizeof record.thread_name);
  return fmt::format("in thread {} ({}){}",
                     record.thread,
                     std::string_view(record.thread_name, length),
                     reason(record));
}

} // namespace muster::process
