#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace muster::cli {

/// "90", "90s", "1.5m", "2h", "1d" or "500ms"; seconds where there is no unit. Rounded up to a
/// millisecond. Throws UsageError that quotes `text` and begins with `subject`.
std::chrono::milliseconds parse_duration(const std::string& text, const std::string& subject);

/// "4096", "64M" or "1.5G" in bytes; K, M, G and T are powers of 1024. Throws as parse_duration.
std::uint64_t parse_size(const std::string& text, const std::string& subject);

} // namespace muster::cli
