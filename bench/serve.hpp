#pragma once

#include <chrono>
#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#include <sys/wait.h>
#include <unistd.h>

// What the programs that run.py compares have in common.
namespace bench {

using Clock = std::chrono::steady_clock;

inline double ms_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

/// Nanoseconds of CLOCK_MONOTONIC, which all processes of a machine share.
inline long now_ns() { return static_cast<long>(Clock::now().time_since_epoch().count()); }

/// Answers every line of standard input with what `measure()` returns, until the end of the input.
template <class F>
int serve(F measure) {
  std::string line;
  while (std::getline(std::cin, line))
    std::cout << measure() << std::endl;
  return 0;
}

/// The same with the milliseconds that `work()` takes.
template <class F>
int serve_times(F work) {
  return serve([&] {
    const auto start = Clock::now();
    work();
    return ms_since(start);
  });
}

/// Waits for children that must end well.
inline void wait_for(const std::vector<pid_t>& children) {
  for (const pid_t child : children) {
    int status = 0;
    if (::waitpid(child, &status, 0) != child || status != 0) {
      std::cerr << "a rank failed, status " << status << std::endl;
      std::_Exit(1);
    }
  }
}

} // namespace bench
