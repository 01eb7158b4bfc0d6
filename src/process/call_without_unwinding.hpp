#pragma once

namespace muster::process {

/// Calls `function(argument)` through a frame that has no unwind tables: an exception that nobody
/// catches inside reaches std::terminate where it was thrown, before any destructor has run. So it
/// is reported even when a destructor on the way would hang, and with the thrower's stack intact.
void call_without_unwinding(void (*function)(void*), void* argument);

} // namespace muster::process
