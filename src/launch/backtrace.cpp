#include <muster/launch/backtrace.hpp>

#include <mutex>
#include <utility>

namespace muster {

struct Backtrace::State {
  std::once_flag once;
  std::function<std::string()> look_up;
  std::string lines;
};

Backtrace::Backtrace(std::string lines) {
  if (lines.empty())
    return;
  state_ = std::make_shared<State>();
  state_->lines = std::move(lines);
}

Backtrace::Backtrace(std::function<std::string()> look_up) : state_(std::make_shared<State>()) {
  state_->look_up = std::move(look_up);
}

const std::string& Backtrace::lines() const {
  static const std::string none;
  if (!state_)
    return none;
  std::call_once(state_->once, [this] {
    if (state_->look_up)
      state_->lines = state_->look_up();
  });
  return state_->lines;
}

} // namespace muster
