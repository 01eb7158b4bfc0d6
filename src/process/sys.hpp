#pragma once

#include <muster/launch/error.hpp>

#include <cerrno>
#include <string>

// The seam to the kernel: every call that can fail for want of a resource goes through here, so
// that tests can make the k-th one fail.
namespace muster::process::sys {

/// For tests: the k-th call from now (0: the next one) in this process fails with `error`.
void fail_call(long k, int error) noexcept;

/// For tests: no call fails any more; returns how many were made since fail_call.
long calls_made() noexcept;

/// True if this call is to fail; errno is set then.
bool must_fail() noexcept;

/// Makes a system call: returns what `function` returns, or -1 with errno set.
template <class F>
auto call(F function) noexcept -> decltype(function()) {
  return must_fail() ? static_cast<decltype(function())>(-1) : function();
}

/// The same; throws SystemError with `subject` when the result is negative.
template <class F>
auto checked(const std::string& subject, F function) -> decltype(function()) {
  const auto result = call(function);
  if (result < 0)
    throw SystemError(subject, errno);
  return result;
}

/// "No space left on device".
std::string error_text(int error);

} // namespace muster::process::sys
