#pragma once

#include <string>

#include <sys/types.h>

namespace muster::process {

/// Where the threads of a live process are: the main thread's stack and those of at most four
/// others, first of threads that do not wait for a lock or for work. Holds one thread at a time for
/// some milliseconds, never stops the process for good, and takes at most about 2 s. Calls that
/// the kernel does not restart after a stop, such as epoll_wait, may return EINTR in that thread.
/// Where tracing is refused, one line says so and the kernel's word for each thread follows.
/// Blocks; any thread may call it. Throws std::system_error if no thread can be made.
std::string stack_of(pid_t pid);

} // namespace muster::process
