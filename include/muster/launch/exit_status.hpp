#pragma once

#include <optional>
#include <string>

namespace muster {

/// How a process ended: it exited with a code, or a signal ended it. Never both.
class ExitStatus {
public:
  /// Exit code 0.
  constexpr ExitStatus() noexcept = default;

  /// A process that exited with `code` (0 to 255).
  static constexpr ExitStatus exited(int code) noexcept { return {code, 0, false}; }

  /// A process that `signal` ended; `core` tells whether the kernel wrote a core file.
  static constexpr ExitStatus signaled(int signal, bool core = false) noexcept {
    return {0, signal, core};
  }

  /// The exit code, or nullopt if a signal ended the process.
  constexpr std::optional<int> code() const noexcept {
    return signal_ == 0 ? std::optional(code_) : std::nullopt;
  }

  /// The signal number, or nullopt if the process exited.
  constexpr std::optional<int> signal() const noexcept {
    return signal_ != 0 ? std::optional(signal_) : std::nullopt;
  }

  constexpr bool core_dumped() const noexcept { return core_; }
  constexpr bool success() const noexcept { return code_ == 0 && signal_ == 0; }

  /// What a shell would show in `$?`: the exit code, or 128 + signal.
  constexpr int shell_code() const noexcept { return signal_ != 0 ? 128 + signal_ : code_; }

  friend constexpr bool operator==(const ExitStatus&, const ExitStatus&) noexcept = default;

private:
  constexpr ExitStatus(int code, int signal, bool core) noexcept
      : code_(code), signal_(signal), core_(core) {}

  int code_ = 0;
  int signal_ = 0;
  bool core_ = false;
};

/// "exit code 1", "signal 9 (SIGKILL)" or "signal 11 (SIGSEGV), core dumped".
std::string to_string(ExitStatus status);

} // namespace muster
