#pragma once

#include <sys/types.h>

// What every new rank process does first. Async-signal-safe.
namespace muster::process {

/// A process group of its own, and death with the launcher; ends at once if the launcher is already
/// gone. `launcher` is passed in since a launcher may be process 1 of a container.
void leave_launchers_group(pid_t launcher) noexcept;

/// Default dispositions (an ignored HUP stays ignored: nohup), and no signal blocked.
void reset_signals() noexcept;

} // namespace muster::process
