#pragma once

#include <string_view>

#include <sys/types.h>

namespace muster::process {

/// write(2) without signals: where it would raise SIGPIPE or SIGXFSZ in this thread, there is only
/// EPIPE or EFBIG. The process's dispositions stay as they are.
ssize_t write_quietly(int fd, std::string_view bytes) noexcept;

} // namespace muster::process
