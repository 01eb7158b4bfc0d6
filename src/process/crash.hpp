#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <sys/types.h>

// What a rank still tells its launcher when a fatal signal ends it.
namespace muster::process {

/// A fatal signal, as the rank's handler saw it. Plain bytes: a message's body begins with one.
struct CrashRecord {
  static constexpr std::size_t most_frames = 128;

  int signal = 0;
  int code = 0;              // si_code: what the kernel knows of the reason
  std::uint64_t address = 0; // si_addr: 0 if the signal was sent
  pid_t thread = 0;
  char thread_name[16] = {};
  std::uint32_t frame_count = 0;
  std::uint64_t frames[most_frames] = {}; // the instruction that failed, then return addresses
};

/// The record and the memory map that its addresses belong to.
struct Crash {
  CrashRecord record = {};
  std::string maps = {}; // the rank's /proc/self/maps
};

/// From now on a fatal signal (SEGV, BUS, ILL, FPE, ABRT, SYS, TRAP) that has the default
/// disposition is told over `control` before this process ends by it, with the same status and core
/// file as without this. Takes at most 5 s then. The calling thread gets an alternate stack; other
/// threads are told of on their own stacks, so that a stack overflow in one of them leaves no
/// trace.
void report_fatal_signals(int control) noexcept;

/// The body of a Kind::crash message; nullopt if it is not whole.
std::optional<Crash> to_crash(std::string_view body);

/// "signal 11 (SIGSEGV) in thread 4243 (train): nothing is mapped at 0x0"
std::string to_line(const CrashRecord& record);

} // namespace muster::process
