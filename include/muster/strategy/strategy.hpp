#pragma once

#include <muster/comm/process_group.hpp>
#include <muster/comm/world.hpp>
#include <muster/launch/launcher.hpp>
#include <muster/strategy/recipe.hpp>

#include <concepts>
#include <exception>
#include <memory>
#include <string>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

namespace torch::nn {
class Module;
} // namespace torch::nn

namespace muster {

namespace detail {
class StrategyInRank;
} // namespace detail

/// Says how ranks compute together, and owns the launcher that makes them.
///
/// The same class stands on both sides: in the program that calls launch(), and in each rank, where
/// an object made from recipe() is given to the launched function. The functions below "In a rank"
/// throw UsageError elsewhere.
class Strategy {
public:
  Strategy(const Strategy&) = delete;
  Strategy& operator=(const Strategy&) = delete;
  virtual ~Strategy();

  Launcher& launcher() noexcept { return *launcher_; }
  const Launcher& launcher() const noexcept { return *launcher_; }

  /// Runs `function(strategy, arguments...)` in every rank and returns the results of the ranks
  /// that this process reports, in rank order (nothing for void). The function takes `Strategy&` or
  /// the concrete class first. Blocks. Throws UsageError, SpawnFailure, RankFailure, Timeout or
  /// Interrupted.
  template <class F, class... A>
  auto launch(F function, const A&... arguments) {
    return launch_function(detail::as_function(function), arguments...);
  }

  /// How the last launch went.
  const JobReport& last_report() const noexcept { return launcher_->last_report(); }

  /// How a rank makes its own object of this class: `return
  /// muster::recipe_of<MyStrategy>(options)`.
  virtual Recipe recipe() const = 0;

  // In a rank.

  const World& world() const;
  int rank() const { return world().rank; }
  int size() const { return world().size; }
  bool is_rank_zero() const { return rank() == 0; }
  /// Where this rank computes.
  at::Device device() const;
  /// The ranks of this job; made by the first call, which all ranks must reach.
  ProcessGroup& group();
  /// What group() chooses its backend from, before it is made: for backends of your own.
  void set_backends(Backends backends);

  /// Moves the module to device() and makes it ready for backward(). Before the optimizer is made.
  virtual void setup(torch::nn::Module& module) = 0;
  /// The same for parameters without a module; they must be on device().
  virtual void setup(const std::vector<at::Tensor>& parameters) = 0;
  /// Computes the gradients of what setup() was given.
  virtual void backward(const at::Tensor& loss) = 0;

  /// As ProcessGroup has them.
  template <class T>
  decltype(auto) all_reduce(const T& value, ReduceOp op = ReduceOp::sum) {
    return group().all_reduce(value, op);
  }
  template <class T>
  decltype(auto) broadcast(const T& value, int root = 0) {
    return group().broadcast(value, root);
  }
  template <class T>
  auto all_gather(const T& value) {
    return group().all_gather(value);
  }
  void barrier() { group().barrier(); }
  template <class F>
  auto rank_zero_first(F&& function) {
    return group().rank_zero_first(std::forward<F>(function));
  }

protected:
  /// `device`: "auto" (CUDA where it is there, else the CPU), "cpu" or "cuda": then a rank uses the
  /// device with the number of its local rank. `backend`: as in choose_backend.
  template <class L>
  requires std::derived_from<L, Launcher>
  explicit Strategy(L launcher, std::string device = "auto", std::string backend = {})
      : launcher_(std::make_unique<L>(std::move(launcher))),
        device_name_(std::move(device)),
        backend_(std::move(backend)) {
    check_device_name();
  }

  // Hooks.

  /// In each rank, before the function's arguments are decoded.
  virtual void setup_environment() {}
  /// In each rank, after the function has returned and before the group ends.
  virtual void teardown() {}
  /// What to add to the report of an exception that leaves the function. The rank ends afterwards.
  virtual std::string decorate(const std::exception& /*error*/) { return {}; }
  /// In this process, before anything is started: throws UsageError if the plan cannot work.
  virtual void check_plan(int /*ranks*/) const {}
  /// Drops what holds on to the group. Called in a rank before the group ends.
  virtual void release() noexcept {}

private:
  friend class detail::StrategyInRank;

  template <class R, class S, class... P, class... A>
  auto launch_function(R (*function)(S&, P...), const A&... arguments);
  template <class Other, class... A>
  void launch_function(Other /*function*/, const A&... /*arguments*/) {
    static_assert(!std::is_same_v<Other, Other>,
                  "muster: the function that a strategy launches takes the strategy by reference "
                  "first: `double train(muster::DDPStrategy& ddp, int steps)`");
  }

  void check_device_name() const;
  /// Throws UsageError; `wanted` is what the function takes.
  void check_launch(const std::type_info& wanted, bool is_wanted, const Recipe& recipe) const;

  std::unique_ptr<Launcher> launcher_;
  std::string device_name_;
  std::string backend_;
  // In a rank:
  const World* world_ = nullptr;
  at::Device device_ = at::kCPU;
  Backends backends_;
  std::unique_ptr<ProcessGroup> group_;
};

namespace detail {

/// A strategy while it belongs to a world: the rank's side of Strategy::launch.
class StrategyInRank {
public:
  /// Makes the strategy from the recipe in front of the call's arguments, and enters the world.
  explicit StrategyInRank(Call& call);
  /// Enters the world with a strategy that exists already.
  StrategyInRank(Strategy& strategy, const World& world);
  StrategyInRank(const StrategyInRank&) = delete;
  StrategyInRank& operator=(const StrategyInRank&) = delete;
  /// Lets go of everything without waiting for other ranks, unless leave() was called.
  ~StrategyInRank();

  Strategy& strategy() noexcept { return *strategy_; }
  /// The ordered end: hooks, then the group, together with all other ranks.
  void leave();

private:
  void enter(const World& world);
  void let_go() noexcept;

  Call* call_ = nullptr;
  std::unique_ptr<Strategy> owned_;
  Strategy* strategy_ = nullptr;
};

void write_recipe(Writer& to, const Recipe& recipe);

template <class S, class R, class... P>
void call_with_strategy(Call& call) {
  StrategyInRank in_rank(call);
  auto& strategy = dynamic_cast<S&>(in_rank.strategy());
  decode_and_call<R, P...>(call, reinterpret_cast<R (*)(S&, P...)>(call.function), strategy);
  in_rank.leave();
}

/// Work for `function(S&, arguments...)` with a strategy made from `recipe`.
template <class S, class R, class... P, class... A>
Work work_with_strategy(const Recipe& recipe, R (*function)(S&, P...), const A&... arguments) {
  Work work;
  work.thunk = symbol_of(reinterpret_cast<const void*>(&call_with_strategy<S, R, P...>));
  work.function = symbol_of(reinterpret_cast<const void*>(function));
  work.arguments = Blob::create("muster-arguments");
  Writer writer(work.arguments);
  write_recipe(writer, recipe);
  encode_arguments<P...>(writer, arguments...);
  writer.finish();
  work.arguments.seal();
  return work;
}

} // namespace detail

template <class R, class S, class... P, class... A>
auto Strategy::launch_function(R (*function)(S&, P...), const A&... arguments) {
  static_assert(std::derived_from<S, Strategy>,
                "muster: the function that a strategy launches takes the strategy first; for one "
                "that takes the World, use launcher().run");
  detail::check_result<R>();
  const Recipe recipe = this->recipe();
  bool is_wanted = true;
  if constexpr (!std::same_as<S, Strategy>)
    is_wanted = dynamic_cast<const S*>(this) != nullptr;
  check_launch(typeid(S), is_wanted, recipe);
  launcher_->launch(detail::work_with_strategy<S, R, P...>(recipe, function, arguments...));
  if constexpr (!std::is_void_v<R>)
    return launcher_->template results<detail::Value<R>>();
}

} // namespace muster
