#pragma once

#include <muster/launch/error.hpp>

#include <exception>
#include <functional>
#include <utility>

namespace muster {

/// To be called first in `main`, while the process has one thread.
///
/// In a process that muster started as a rank it does that rank's work and ends the process; it
/// does not return. Elsewhere it remembers how the program was started, makes the fork server (not
/// with MUSTER_FORKSERVER=0, nor where others created the ranks), and returns. A second call does
/// nothing. Throws SystemError.
void init(int argc, char** argv);

/// True in a process that muster started as a rank.
bool in_rank() noexcept;

/// `callback` runs when this rank's function has ended, before the process leaves by `_exit`
/// (static destructors do not run). Latest first. Throws UsageError outside of a rank.
void at_rank_exit(std::function<void()> callback);

/// Says what this rank is doing, for reports: at most 31 bytes are kept. Does nothing outside of a
/// rank. Costs nanoseconds.
void progress(const char* what) noexcept;

namespace detail {

/// Prints `error` on stderr, as a report if it has one, and returns the process's exit code.
int report_error(const std::exception& error) noexcept;

} // namespace detail

/// Runs `function` and returns 0, or what it returns if that is an int. A muster error, or any
/// other std::exception, becomes its report on stderr and its exit code.
template <class F>
int guard(F&& function) {
  try {
    if constexpr (std::is_same_v<decltype(std::forward<F>(function)()), int>) {
      return std::forward<F>(function)();
    } else {
      std::forward<F>(function)();
      return 0;
    }
  } catch (const std::exception& error) {
    return detail::report_error(error);
  }
}

} // namespace muster
