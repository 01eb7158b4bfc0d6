#include <muster/launch/error.hpp>
#include <muster/strategy/single_device.hpp>

#include <fmt/format.h>
#include <torch/nn/module.h>

namespace muster {

void SingleDeviceStrategy::check_plan(int ranks) const {
  if (ranks != 1)
    throw UsageError(fmt::format(
        "SingleDeviceStrategy runs one rank, not {}; DDPStrategy takes several", ranks));
}

void SingleDeviceStrategy::setup(torch::nn::Module& module) { module.to(device()); }

void SingleDeviceStrategy::setup(const std::vector<at::Tensor>& parameters) {
  for (std::size_t i = 0; i < parameters.size(); ++i)
    if (parameters[i].device() != device())
      throw UsageError(fmt::format("setup: parameter {} is on {}, not on this rank's device {}",
                                   i,
                                   parameters[i].device().str(),
                                   device().str()));
}

void SingleDeviceStrategy::backward(const at::Tensor& loss) { loss.backward(); }

} // namespace muster
