#include <muster/launch/error.hpp>
#include <muster/strategy/ddp.hpp>

#include <string>
#include <unordered_set>

#include <fmt/format.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/embedding.h>

#include "comm/notes.hpp"
#include "strategy/reducer.hpp"

namespace muster {

/// What setup() was given, each tensor once.
struct DDPStrategy::Model {
  std::vector<NamedTensor> parameters; // those that need gradients
  std::vector<NamedTensor> others;     // frozen parameters and buffers
  std::vector<at::Tensor> buffers;

  void add_parameter(const std::string& name, const at::Tensor& tensor, bool sparse) {
    if (!tensor.defined() || !seen.insert(tensor.unsafeGetTensorImpl()).second)
      return;
    (tensor.requires_grad() ? parameters : others).push_back({name, tensor, sparse});
  }

  void add_buffer(const std::string& name, const at::Tensor& tensor) {
    if (!tensor.defined() || !seen.insert(tensor.unsafeGetTensorImpl()).second)
      return;
    others.push_back({name, tensor});
    buffers.push_back(tensor);
  }

  std::vector<NamedTensor> all() const {
    std::vector<NamedTensor> tensors = parameters;
    tensors.insert(tensors.end(), others.begin(), others.end());
    return tensors;
  }

private:
  std::unordered_set<const void*> seen;
};

namespace {

constexpr double mebibyte = 1 << 20;

bool has_sparse_gradient(const torch::nn::Module& module) {
  if (const auto* embedding = module.as<torch::nn::EmbeddingImpl>())
    return embedding->options.sparse();
  if (const auto* bag = module.as<torch::nn::EmbeddingBagImpl>())
    return bag->options.sparse();
  return false;
}

/// The names of the parameters whose gradients are sparse. A module on the stack cannot list
/// itself.
std::unordered_set<std::string> sparse_weights(const torch::nn::Module& module) {
  std::unordered_set<std::string> names;
  if (has_sparse_gradient(module))
    names.insert("weight");
  for (const auto& part : module.named_modules("", false))
    if (has_sparse_gradient(*part.value()))
      names.insert(part.key() + ".weight");
  return names;
}

} // namespace

DDPStrategy::~DDPStrategy() = default;

void DDPStrategy::check_options() const {
  if (!(options_.bucket_cap_mb > 0) || !(options_.first_bucket_mb > 0))
    throw UsageError(fmt::format("DDPOptions: bucket_cap_mb ({}) and first_bucket_mb ({}) must be "
                                 "above 0",
                                 options_.bucket_cap_mb,
                                 options_.first_bucket_mb));
}

void DDPStrategy::setup(torch::nn::Module& module) {
  module.to(device());
  const std::unordered_set<std::string> sparse = sparse_weights(module);
  Model model;
  for (const auto& parameter : module.named_parameters())
    model.add_parameter(parameter.key(), parameter.value(), sparse.contains(parameter.key()));
  for (const auto& buffer : module.named_buffers())
    model.add_buffer(buffer.key(), buffer.value());
  setup_model(std::move(model));
}

void DDPStrategy::setup(const std::vector<at::Tensor>& parameters) {
  Model model;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (parameters[i].device() != device())
      throw UsageError(fmt::format("setup: parameter {} is on {}, not on this rank's device {}",
                                   i,
                                   parameters[i].device().str(),
                                   device().str()));
    model.add_parameter(std::to_string(i), parameters[i], false);
  }
  setup_model(std::move(model));
}

void DDPStrategy::setup_model(Model model) {
  reducer_.reset(); // its hooks go before new ones come
  compare_models(group(), model.all());
  std::vector<at::Tensor> tensors;
  for (const NamedTensor& each : model.all())
    tensors.push_back(each.tensor);
  synchronize(group(), tensors);
  buffers_ = std::move(model.buffers);
  if (model.parameters.empty())
    return; // nothing to average
  const ReducerOptions options{
      .bucket_cap_bytes = static_cast<std::size_t>(options_.bucket_cap_mb * mebibyte),
      .first_bucket_bytes = static_cast<std::size_t>(options_.first_bucket_mb * mebibyte),
      .find_unused_parameters = options_.find_unused_parameters,
      .gradient_as_bucket_view = options_.gradient_as_bucket_view,
  };
  reducer_ = std::make_shared<GradientReducer>(group(), std::move(model.parameters), options);
}

void DDPStrategy::backward(const at::Tensor& loss) {
  if (!reducer_)
    throw UsageError(
        "DDPStrategy::backward before setup(): it does not know the parameters yet, or "
        "none of them needs a gradient");
  reducer_->backward(loss);
  if (options_.broadcast_buffers && !buffers_.empty())
    synchronize(group(), buffers_);
  comm::note_step();
}

void DDPStrategy::release() noexcept {
  reducer_.reset();
  buffers_.clear();
}

} // namespace muster
