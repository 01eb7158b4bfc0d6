#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>

namespace muster::process {

/// The last lines of a rank's two output streams, in the order in which they came to an end.
class Tail {
public:
  /// What is remembered at least, if there was so much.
  static constexpr std::size_t least_bytes = 8 * 1024;

  /// `stream` is 0 or 1.
  void add(std::size_t stream, std::string_view bytes);

  /// The last `lines` lines as a terminal shows them: of "10%\r20%\n" only "20%\n". Unfinished ones
  /// come last.
  std::string last(int lines) const;

private:
  std::string finished_;
  std::array<std::string, 2> unfinished_;
};

} // namespace muster::process
