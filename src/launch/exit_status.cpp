#include <muster/launch/exit_status.hpp>

#include <cstring>

#include <fmt/format.h>

namespace muster {

std::string to_string(ExitStatus status) {
  if (const auto code = status.code())
    return fmt::format("exit code {}", *code);
  const char* name = ::sigabbrev_np(*status.signal());
  return fmt::format("signal {}{}{}",
                     *status.signal(),
                     name ? fmt::format(" (SIG{})", name) : "",
                     status.core_dumped() ? ", core dumped" : "");
}

} // namespace muster
