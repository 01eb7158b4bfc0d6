#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include <sys/types.h>

#include "crash.hpp"

struct Dwfl;

// From addresses in a process to functions and lines. Reads files of this machine only: nothing is
// looked up in the network.
namespace muster::process {

/// A place in a process's code.
struct Frame {
  std::uint64_t address = 0;
  bool exact = false; // the instruction itself, not where a call returns to
};

/// The modules of one process, also after its end. Throws nothing but std::bad_alloc; what it
/// cannot find is left out.
class Symbolizer {
public:
  using Clock = std::chrono::steady_clock;

  /// After `deadline` frames are told by module and offset only.
  explicit Symbolizer(Clock::time_point deadline);

  /// The modules of a copy of /proc/PID/maps.
  void use_maps(std::string_view maps);
  /// The modules of a process that lives.
  void use_process(pid_t pid);

  /// A line per frame and one for each function that was inlined there:
  /// "#3 0x55d0c0a81234 train(World&, int) at train.cpp:42 (in ./train+0x1234)". Files below the
  /// working directory are named from there. The standard library's ways to call a function are
  /// counted and left out.
  std::string lines(std::span<const Frame> frames);

  Dwfl* session() const noexcept { return session_.get(); }

private:
  struct End {
    void operator()(Dwfl* session) const noexcept;
  };

  Clock::time_point deadline_;
  std::unique_ptr<Dwfl, End> session_;
};

/// The stack of a crash, a line per frame; #0 is the instruction that failed. Takes about 2 s at
/// most: what is not symbolized then is told by module and offset, as is all that lies in modules
/// which have changed or gone.
std::string symbolize(const CrashRecord& record, std::string_view maps);

} // namespace muster::process
