// A program that crashes, or waits, in ways that process/backtrace expects: `crash CHANNEL MODE`.
// A comment "here: NAME" marks the lines that a backtrace has to name.
#include "process/crash.hpp"

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <thread>

#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "crash_library.hpp"

#define APART __attribute__((noinline))

namespace {

int control = -1;
volatile int zero = 0;

} // namespace

APART void write_to(volatile int* target) {
  *target = 1; // here: write
}

APART void null_pointer() {
  write_to(nullptr); // here: null_pointer
}

APART void abort_it() {
  std::abort(); // here: abort_it
}

APART int divide_by(int divisor) {
  return 100 / divisor; // here: divide
}

APART void division() {
  zero = divide_by(zero); // here: division
}

APART int down(volatile int* above) {
  volatile int room[64] = {*above};
  return *above == 0 ? down(room) + room[1] : 0; // here: down
}

APART void overflow() { zero = down(&zero); }

APART void thread_function() {
  ::prctl(PR_SET_NAME, "second");
  write_to(nullptr); // here: thread_function
}

APART void in_thread() { std::thread(thread_function).join(); }

APART void together() {
  std::thread other(null_pointer);
  null_pointer();
  other.join();
}

APART void library() {
  crash_in_library(nullptr); // here: library
}

APART void no_function() {
  void (*volatile function)() = nullptr;
  function(); // here: no_function
  zero = 1;
}

__attribute__((always_inline)) inline void inlined_write(volatile int* target) {
  *target = 1; // here: inlined_write
}

__attribute__((always_inline)) inline void inlined_call(volatile int* target) {
  inlined_write(target); // here: inlined_call
}

APART void inlined() {
  inlined_call(nullptr); // here: inlined
}

APART void broken_stack() {
#if defined(__x86_64__)
  asm volatile("mov $16, %rbp\n\tmovl $0, 0"); // here: broken_stack
#elif defined(__aarch64__)
  asm volatile("mov x29, #16\n\tstr wzr, [x29]"); // here: broken_stack
#endif
}

APART void own_handler() {
  std::signal(SIGSEGV, [](int) { ::_exit(7); });
  muster::process::report_fatal_signals(control);
  null_pointer();
}

APART void in_child() {
  if (::fork() == 0)
    null_pointer();
  int status = 0;
  ::wait(&status);
  ::_exit(WIFSIGNALED(status) ? WTERMSIG(status) : 0);
}

APART void full_channel() {
  while (::send(control, "", 1, MSG_DONTWAIT) == 1)
    ;
  null_pointer();
}

APART void sent() { ::kill(::getpid(), SIGSEGV); }

APART void wait_for_input() {
  char byte = 0;
  std::puts("waiting");
  std::fflush(stdout);
  zero = static_cast<int>(::read(STDIN_FILENO, &byte, 1)); // here: wait_for_input
}

APART void wait_in_threads() {
  std::thread other([] {
    ::prctl(PR_SET_NAME, "second");
    wait_for_input();
    ::_exit(3);
  });
  other.join(); // here: wait_in_threads
}

int main(int argc, char** argv) {
  if (argc != 3)
    return 2;
  control = std::atoi(argv[1]);
  muster::process::report_fatal_signals(control);
  static const std::map<std::string, void (*)()> modes{
      {"null_pointer", null_pointer},
      {"abort", abort_it},
      {"division", division},
      {"overflow", overflow},
      {"in_thread", in_thread},
      {"together", together},
      {"library", library},
      {"no_function", no_function},
      {"inlined", inlined},
      {"broken_stack", broken_stack},
      {"own_handler", own_handler},
      {"in_child", in_child},
      {"full_channel", full_channel},
      {"sent", sent},
      {"wait", wait_for_input},
      {"wait_in_threads", wait_in_threads},
  };
  modes.at(argv[2])(); // here: main
  return 0;
}
