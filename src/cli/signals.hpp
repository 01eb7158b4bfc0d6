#pragma once

#include <optional>
#include <string>
#include <vector>

namespace muster::cli {

/// The signal of a name with or without SIG, in any case ("TERM", "sigusr1", "RTMIN+3"), or of a
/// number; nullopt if Linux has none such.
std::optional<int> signal_from(const std::string& name);

/// "SIGTERM" or "SIGRTMIN+3"; the number of one that has no name.
std::string signal_name(int signal);

/// "TERM,USR1" as signals, each once. Throws UsageError that quotes `text` and begins with
/// `subject`, also for signals that nobody but the kernel, or the launcher itself, can handle.
std::vector<int> parse_signals(const std::string& text, const std::string& subject);

} // namespace muster::cli
