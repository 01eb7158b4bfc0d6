#pragma once

#include <memory>
#include <string>
#include <vector>

#include "fd.hpp"
#include "guardian.hpp"

namespace muster::process {

/// How this program was started, and its guardian: what `init` remembers. One per process, since a
/// process has one `main`.
class Program {
public:
  /// nullptr before muster::init.
  static Program* get() noexcept;

  /// Called by muster::init. Throws SystemError.
  static void start(int argc, char** argv);

  /// In a rank that was forked: this process launches nothing.
  void abandon() noexcept;

  const std::vector<std::string>& arguments() const noexcept { return arguments_; }
  /// The running program's file, so that a rebuild cannot mix versions.
  int executable() const noexcept { return executable_.get(); }
  /// True if the module with this build id was there when `init` was called, so that a rank which
  /// is executed, or forked from the server, has it too.
  bool had_module(const std::string& build_id) const;

  /// A live guardian, made anew if there is none or if it has died. Throws SystemError.
  std::shared_ptr<Guardian> guardian();
  /// The same, but one that can make ranks. Throws UsageError that says why there is none.
  std::shared_ptr<Guardian> fork_server();

private:
  std::vector<std::string> arguments_;
  Fd executable_;
  std::vector<std::string> modules_;
  std::mutex mutex_; // guards guardian_
  std::shared_ptr<Guardian> guardian_;
};

/// The names of this process's threads.
std::vector<std::string> thread_names();

} // namespace muster::process
