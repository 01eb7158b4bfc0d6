#pragma once

#include <functional>
#include <memory>
#include <string>

namespace muster {

/// Where a rank was: a line for each frame. A value; copies share what has been looked up.
class Backtrace {
public:
  /// None.
  Backtrace() = default;
  explicit Backtrace(std::string lines);
  /// `look_up` is called once, when the lines are first asked for: finding names and lines in a
  /// program with libtorch takes about 0.1 s.
  explicit Backtrace(std::function<std::string()> look_up);

  bool empty() const noexcept { return state_ == nullptr; }
  /// Blocks while it is looked up; any thread may ask.
  const std::string& lines() const;

private:
  struct State;
  std::shared_ptr<State> state_;
};

} // namespace muster
