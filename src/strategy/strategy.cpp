#include <muster/launch/error.hpp>
#include <muster/launch/init.hpp>
#include <muster/strategy/strategy.hpp>

#include <cstdlib>

#include <cxxabi.h>

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <fmt/format.h>

#include "process/rank.hpp"

namespace muster {

namespace {

std::string name_of(const std::type_info& type) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> text(
      abi::__cxa_demangle(type.name(), nullptr, nullptr, &status), std::free);
  return status == 0 ? text.get() : type.name();
}

int cuda_devices() {
  if (!c10::impl::hasDeviceGuardImpl(at::kCUDA))
    return 0;
  return static_cast<int>(c10::impl::getDeviceGuardImpl(at::kCUDA)->deviceCount());
}

/// This rank's device. Throws UsageError if it has none of that kind.
at::Device choose_device(const std::string& name, const World& world) {
  const int count = name == "cpu" ? 0 : cuda_devices();
  if (name == "cpu" || (name == "auto" && count == 0))
    return at::kCPU;
  if (world.local_rank < count)
    return {at::kCUDA, static_cast<at::DeviceIndex>(world.local_rank)};
  throw UsageError(
      fmt::format("rank {} needs CUDA device {} (its local rank), but there are {} that "
                  "libtorch can use",
                  world.rank,
                  world.local_rank,
                  count));
}

/// True if this process leaves by _exit, without waiting for threads, when its function is done.
bool ends_with_its_function() {
  return in_rank() && process::joined_part() != process::Part::program;
}

const World& require(const World* world, const char* what) {
  if (!world)
    throw UsageError(fmt::format("{} is for the launched function, in a rank", what));
  return *world;
}

} // namespace

Strategy::~Strategy() = default;

const World& Strategy::world() const { return require(world_, "Strategy::world()"); }

at::Device Strategy::device() const {
  require(world_, "Strategy::device()");
  return device_;
}

ProcessGroup& Strategy::group() {
  const World& world = require(world_, "Strategy::group()");
  if (!group_)
    group_ = std::make_unique<ProcessGroup>(
        world, device_, GroupOptions{.backend = backend_, .backends = backends_});
  return *group_;
}

void Strategy::set_backends(Backends backends) {
  if (group_)
    throw UsageError("Strategy::set_backends after the group was made: call it before setup()");
  backends_ = std::move(backends);
}

void Strategy::check_device_name() const {
  if (device_name_ != "auto" && device_name_ != "cpu" && device_name_ != "cuda")
    throw UsageError(
        fmt::format("there is no device '{}'; take \"auto\", \"cpu\" or \"cuda\"", device_name_));
}

void Strategy::check_launch(const std::type_info& wanted,
                            bool is_wanted,
                            const Recipe& recipe) const {
  const std::string own = name_of(typeid(*this));
  if (world_)
    throw UsageError(own + "::launch inside of a rank");
  if (!is_wanted)
    throw UsageError(
        fmt::format("the launched function takes {}&, but was given to {}; let it take "
                    "that, or muster::Strategy&",
                    name_of(wanted),
                    own));
  if (!recipe.type || *recipe.type != typeid(*this))
    throw UsageError(fmt::format("{} has no recipe of its own, so ranks would get {}: add `muster::"
                                 "Recipe recipe() const override {{ return muster::recipe_of<{}>("
                                 "options); }}`",
                                 own,
                                 recipe.type ? name_of(*recipe.type) : "nothing",
                                 own));
  if (!in_rank())
    check_plan(static_cast<int>(launcher_->plan().ranks.size()));
}

namespace detail {

JobReport RankLauncher::spawn(Task /*task*/) {
  throw UsageError("launch inside of a rank: ranks cannot start ranks");
}

void write_recipe(Writer& to, const Recipe& recipe) {
  to(recipe.make.build_id, recipe.make.offset, recipe.make.module, recipe.options);
}

StrategyInRank::StrategyInRank(Call& call) : call_(&call) {
  Recipe recipe;
  call.arguments(recipe.make.build_id, recipe.make.offset, recipe.make.module, recipe.options);
  const auto make = reinterpret_cast<MakeStrategy>(address_of(recipe.make));
  Reader options{std::string_view(recipe.options)};
  owned_ = make(options);
  strategy_ = owned_.get();
  call.explain = [this](const std::exception& error) { return strategy_->decorate(error); };
  enter(call.world);
}

StrategyInRank::StrategyInRank(Strategy& strategy, const World& world) : strategy_(&strategy) {
  enter(world);
}

StrategyInRank::~StrategyInRank() { let_go(); }

void StrategyInRank::enter(const World& world) {
  strategy_->check_plan(world.size);
  if (world.threads > 0)
    at::set_num_threads(world.threads);
  strategy_->device_ = choose_device(strategy_->device_name_, world);
  if (strategy_->device_.is_cuda())
    c10::impl::getDeviceGuardImpl(at::kCUDA)->setDevice(strategy_->device_);
  strategy_->backends_ = default_backends();
  strategy_->world_ = &world;
  strategy_->setup_environment();
}

void StrategyInRank::leave() {
  strategy_->teardown();
  strategy_->release();
  if (strategy_->group_)
    ends_with_its_function() ? strategy_->group_->leave() : strategy_->group_->close();
  let_go();
}

void StrategyInRank::let_go() noexcept {
  if (call_)
    call_->explain = nullptr;
  strategy_->release();
  strategy_->group_.reset();
  strategy_->world_ = nullptr;
}

} // namespace detail

} // namespace muster
