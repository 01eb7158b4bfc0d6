// Compiled with -fno-exceptions -fno-asynchronous-unwind-tables: see the header.
#include "call_without_unwinding.hpp"

namespace muster::process {

void call_without_unwinding(void (*function)(void*), void* argument) {
  function(argument);
  asm volatile(""); // the call above must not become a jump that skips this frame
}

} // namespace muster::process
