#include "strategy/reducer.hpp"

#include <muster/launch/error.hpp>

#include <tuple>
#include <type_traits>
#include <unordered_map>
#include <unordered_set>

#include <ATen/Functions.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/csrc/distributed/c10d/logger.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>

#include "comm/notes.hpp"
#include "comm/rank_list.hpp"

namespace muster {

namespace {

using Group = c10::intrusive_ptr<c10d::ProcessGroup>;
using Buckets = std::vector<std::vector<std::size_t>>;
using Names = std::unordered_map<std::size_t, std::string>;

/// What every version of Reducer's constructor takes, under one name each.
struct Parts {
  std::vector<at::Tensor> parameters;
  Buckets buckets;
  std::vector<std::size_t> limits;
  Group group;
  std::vector<bool> sparse;
  std::int64_t cap = 0;
  bool find_unused = false;
  bool as_view = false;
  Names names;
  std::int64_t first_cap = 0;
};

/// Calls the constructor that takes `limits` after the buckets and `more` at the end; nullptr if
/// this libtorch has no such one.
template <class R, class... Limits, class... More>
std::shared_ptr<R>
construct(const Parts& p, const std::tuple<Limits...>& limits, const std::tuple<More...>& more) {
  const auto make = [&](const auto&... all) -> std::shared_ptr<R> {
    if constexpr (std::is_constructible_v<R, decltype(all)...>)
      return std::make_shared<R>(all...);
    else
      return nullptr;
  };
  return std::apply(
      make,
      std::tuple_cat(
          std::tie(p.parameters, p.buckets),
          limits,
          std::tie(p.group, p.sparse, p.cap, p.find_unused, p.as_view, p.names, p.first_cap),
          more));
}

/// Tries the constructors of libtorch 2.6 and newer, the newest first.
template <class R>
std::shared_ptr<R> make_reducer(const Parts& p) {
  const std::tuple<> none;
  const auto limits = std::tie(p.limits);
  const std::tuple flags(false, false); // skip unused all-reduces; a reducer in Python
  const std::tuple with_caps(false, false, std::vector<std::int64_t>());
  if (auto reducer = construct<R>(p, none, with_caps))
    return reducer;
  if (auto reducer = construct<R>(p, none, flags))
    return reducer;
  if (auto reducer = construct<R>(p, limits, flags))
    return reducer;
  if (auto reducer = construct<R>(p, limits, none))
    return reducer;
  throw Error("the Reducer of this libtorch has a constructor that muster does not know");
}

/// One bucket for each dtype and device in the first pass, or the final sizes where no second pass
/// comes; in the order in which gradients become ready, which is roughly the reverse.
void assign_buckets(Parts& parts) {
  std::vector<std::size_t> limits;
  if (parts.find_unused)
    limits = {static_cast<std::size_t>(parts.first_cap), static_cast<std::size_t>(parts.cap)};
  else
    limits = {static_cast<std::size_t>(parts.cap)};
  auto [buckets, bucket_limits] =
      c10d::compute_bucket_assignment_by_size(parts.parameters, limits, parts.sparse);
  parts.buckets.assign(buckets.rbegin(), buckets.rend());
  parts.limits.assign(bucket_limits.rbegin(), bucket_limits.rend());
}

/// The same memory as a tensor that is no view: optimizers detach gradients, which views refuse.
at::Tensor alias_of(const at::Tensor& view) {
  return at::empty({0}, view.options().requires_grad(false))
      .set_(view.storage(), view.storage_offset(), view.sizes(), view.strides());
}

bool same_memory(const at::Tensor& a, const at::Tensor& b) {
  return a.defined() && a.is_alias_of(b) && a.storage_offset() == b.storage_offset() &&
         a.sizes() == b.sizes() && a.strides() == b.strides();
}

/// The gradient accumulators that `loss`'s graph leads to.
std::unordered_set<const torch::autograd::Node*> accumulators_of(const at::Tensor& loss) {
  std::unordered_set<const torch::autograd::Node*> seen;
  std::vector<const torch::autograd::Node*> open{loss.grad_fn().get()};
  while (!open.empty()) {
    const torch::autograd::Node* node = open.back();
    open.pop_back();
    if (!node || !seen.insert(node).second)
      continue;
    for (const auto& edge : node->next_edges())
      open.push_back(edge.function.get());
  }
  return seen;
}

std::string describe(const NamedTensor& each) {
  return fmt::format("'{}' {} {}{}",
                     each.name,
                     c10::toString(each.tensor.scalar_type()),
                     c10::str(each.tensor.sizes()),
                     each.tensor.requires_grad() ? "" : " (no gradient)");
}

} // namespace

struct GradientReducer::State {
  std::vector<NamedTensor> parameters;
  std::vector<at::Tensor> aliases;
  bool find_unused = false;
  // Logger keeps Reducer alive; Reducer crashes with find_unused when its Logger is gone.
  std::shared_ptr<c10d::Reducer> reducer;
  std::shared_ptr<c10d::Logger> logger;
};

GradientReducer::GradientReducer(ProcessGroup& group,
                                 std::vector<NamedTensor> parameters,
                                 const ReducerOptions& options)
    : state_(std::make_unique<State>()) {
  Parts parts;
  for (const NamedTensor& each : parameters) {
    parts.names[parts.parameters.size()] = each.name;
    parts.parameters.push_back(each.tensor);
    parts.sparse.push_back(each.sparse_gradient);
  }
  parts.group = group.native();
  parts.cap = static_cast<std::int64_t>(options.bucket_cap_bytes);
  parts.first_cap = static_cast<std::int64_t>(options.first_bucket_bytes);
  parts.find_unused = options.find_unused_parameters;
  parts.as_view = options.gradient_as_bucket_view;
  assign_buckets(parts);
  State& state = *state_;
  state.parameters = std::move(parameters);
  state.aliases.resize(state.parameters.size());
  state.find_unused = parts.find_unused;
  state.reducer = make_reducer<c10d::Reducer>(parts);
  state.logger = std::make_shared<c10d::Logger>(state.reducer);
  state.reducer->set_logger(state.logger);
  state.logger->set_construction_data_and_log("muster", {}, -1, false, false, false);
  hand_out_gradients(); // those of an earlier setup are now views
}

GradientReducer::~GradientReducer() {
  state_->logger.reset();
  state_->reducer.reset();
}

void GradientReducer::check_unchanged() const {
  for (const NamedTensor& each : state_->parameters)
    if (!each.tensor.requires_grad())
      throw UsageError(fmt::format("parameter '{}' needs no gradient any more; call setup() again "
                                   "after freezing parameters",
                                   each.name));
}

void GradientReducer::hand_out_gradients() {
  for (std::size_t i = 0; i < state_->parameters.size(); ++i) {
    at::Tensor& gradient = state_->parameters[i].tensor.mutable_grad();
    if (!gradient.defined() || gradient.layout() != at::kStrided || !gradient.is_view())
      continue;
    at::Tensor& alias = state_->aliases[i];
    if (!same_memory(alias, gradient))
      alias = alias_of(gradient);
    gradient = alias;
  }
}

std::string GradientReducer::names_without_gradient(const at::Tensor& loss) const {
  const auto reached = accumulators_of(loss);
  std::string names;
  for (const NamedTensor& each : state_->parameters) {
    const auto accumulator = torch::autograd::impl::grad_accumulator(each.tensor);
    if (!reached.contains(accumulator.get()))
      names += fmt::format("{}'{}'", names.empty() ? "" : ", ", each.name);
  }
  return names;
}

void GradientReducer::backward(const at::Tensor& loss) {
  check_unchanged();
  State& state = *state_;
  const comm::CollectiveNote note("backward", 0);
  state.logger->set_runtime_stats_and_log();
  state.reducer->prepare_for_forward();
  if (state.reducer->rebuild_buckets())
    hand_out_gradients();
  std::vector<at::Tensor> outputs;
  if (state.find_unused)
    outputs.push_back(loss);
  state.reducer->prepare_for_backward(outputs);
  const std::vector<std::int64_t> ready_before = state.reducer->get_backward_stats();
  loss.backward();
  // Reducer itself does not notice when no gradient came at all.
  if (state.reducer->get_backward_stats() == ready_before)
    throw Error("the loss depends on none of the parameters that setup() was given");
  try {
    state.reducer->check_finalized();
  } catch (const c10::Error& error) {
    const std::string names = names_without_gradient(loss);
    if (names.empty())
      throw;
    throw Error(
        fmt::format("the loss does not depend on {}, so that gradients could not be averaged; "
                    "leave them out of the model, or set find_unused_parameters",
                    names));
  }
  hand_out_gradients();
}

void compare_models(ProcessGroup& group, const std::vector<NamedTensor>& tensors) {
  std::vector<std::string> mine;
  std::string all;
  for (const NamedTensor& each : tensors) {
    mine.push_back(describe(each));
    all += mine.back() + '\n';
  }
  const std::string digest = fmt::format("{} {:x}", mine.size(), std::hash<std::string>()(all));
  const std::vector<std::string> digests = group.all_gather(digest);
  if (std::equal(digests.begin() + 1, digests.end(), digests.begin()))
    return;
  const std::vector<std::vector<std::string>> lists = group.all_gather(mine);
  std::size_t longest = 0;
  for (const auto& list : lists)
    longest = std::max(longest, list.size());
  for (std::size_t i = 0; i < longest; ++i) {
    std::vector<std::string> said;
    for (const auto& list : lists)
      said.push_back(i < list.size() ? list[i] : "no more");
    if (!std::equal(said.begin() + 1, said.end(), said.begin()))
      throw RendezvousError(fmt::format("ranks disagree on the model: parameter or buffer {} is {}",
                                        i,
                                        comm::who_said_what(said)));
  }
  throw RendezvousError("ranks disagree on the model"); // equal lists with different digests
}

void synchronize(ProcessGroup& group, const std::vector<at::Tensor>& tensors) {
  constexpr std::size_t chunk_bytes = std::size_t(250) << 20;
  std::vector<at::Tensor> targets;
  std::vector<at::Tensor> wires; // bytes, since not every backend knows every dtype
  for (const at::Tensor& tensor : tensors) {
    if (tensor.numel() == 0)
      continue;
    targets.push_back(tensor.variable_data());
    wires.push_back(targets.back().contiguous().view(-1).view(at::kByte));
  }
  if (wires.empty())
    return;
  c10d::broadcast_coalesced(group.native(), wires, chunk_bytes, 0);
  for (std::size_t i = 0; i < targets.size(); ++i)
    if (!wires[i].is_alias_of(targets[i]))
      targets[i].copy_(wires[i].view(targets[i].scalar_type()).view(targets[i].sizes()));
}

} // namespace muster
