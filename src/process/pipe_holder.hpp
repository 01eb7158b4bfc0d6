#pragma once

#include <optional>
#include <string>

namespace muster::process {

/// Another process that can write to the pipe behind `fd`: "process 4711 (sleep)". nullopt if none
/// is found, such as one of another user.
std::optional<std::string> pipe_holder(int fd);

} // namespace muster::process
