#include "fault.hpp"

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <signal.h>
#include <time.h>
#include <unistd.h>

namespace muster::process {

namespace {

void act(const char* action, int number) {
  if (std::strcmp(action, "exit") == 0)
    ::_exit(number);
  if (std::strcmp(action, "signal") == 0)
    ::kill(::getpid(), number);
  if (std::strcmp(action, "hang") == 0)
    for (;;)
      ::pause();
  if (std::strcmp(action, "sleep") == 0) {
    const timespec pause{number / 1000, long{number % 1000} * 1'000'000};
    ::nanosleep(&pause, nullptr);
  }
}

} // namespace

void fault_point(const char* stage, int rank) noexcept {
  const char* fault = std::getenv("MUSTER_FAULT");
  if (fault == nullptr)
    return;
  char named[32];
  char action[32];
  int number = 0;
  int only = -1;
  const int parts = std::sscanf(fault, "%31[^:]:%31[a-z] %d:%d", named, action, &number, &only);
  if (parts < 2 || std::strcmp(named, stage) != 0 || (parts == 4 && only != rank))
    return;
  act(action, number);
}

} // namespace muster::process
