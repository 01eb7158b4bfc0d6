#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "console.hpp"

namespace muster::process {

/// Brings the bytes of one stream to a console as whole lines, each after a prefix. A line ends
/// with '\n', '\r' or "\r\n". What is too long, or has waited too long for its end, comes in
/// pieces: each but the last gets a '\n', each but the first begins with "+ ".
class LineWriter {
public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::size_t longest_line = 1024 * 1024;
  static constexpr auto longest_wait = std::chrono::seconds(1);

  enum class WhenFull {
    wait, ///< nothing is lost: whoever calls `add` looks at the console first
    drop, ///< lines that come while the console is full are left out, and counted
  };

  LineWriter(Console& console, std::string prefix, WhenFull when_full)
      : console_(console), prefix_(std::move(prefix)), when_full_(when_full) {}

  void add(std::string_view bytes, Clock::time_point now);
  /// Writes an unfinished line as a piece.
  void split(Clock::time_point now);
  /// The stream has ended: an unfinished line gets its '\n'.
  void finish();

  /// When `split` is due; nullopt if no line is unfinished.
  std::optional<Clock::time_point> deadline() const;
  std::size_t unfinished_bytes() const noexcept { return unfinished_.size(); }
  std::uint64_t dropped_lines() const noexcept { return dropped_; }
  const Console& console() const noexcept { return console_; }

private:
  std::string_view take_lines(std::string_view bytes, Clock::time_point now);
  void take_line(std::string_view line, Clock::time_point now);
  void hold(std::string_view part, Clock::time_point now);
  void release();
  void write(std::string_view line, bool ends);

  Console& console_;
  std::string prefix_;
  WhenFull when_full_;
  std::string unfinished_;
  Clock::time_point began_; // of `unfinished_`
  bool continues_ = false;  // what comes next belongs to a line that has been split
  std::uint64_t dropped_ = 0;
};

} // namespace muster::process
