#include "sys.hpp"

#include <atomic>
#include <cstring>

namespace muster::process::sys {

namespace {

constexpr long never = -1;
std::atomic<long> fail_at = never;
std::atomic<long> count = 0;
std::atomic<int> fail_with = 0;

} // namespace

void fail_call(long k, int error) noexcept {
  count = 0;
  fail_with = error;
  fail_at = k;
}

long calls_made() noexcept {
  fail_at = never;
  return count;
}

bool must_fail() noexcept {
  if (fail_at.load(std::memory_order_relaxed) == never)
    return false;
  if (count.fetch_add(1) != fail_at)
    return false;
  errno = fail_with;
  return true;
}

std::string error_text(int error) {
  const char* text = ::strerrordesc_np(error);
  return text != nullptr ? text : "error " + std::to_string(error);
}

} // namespace muster::process::sys
