// A training step on two ranks: without communication, with DDPStrategy, and with what one would
// write without it, an all-reduce for each gradient.
#include <muster/muster.hpp>

#include <algorithm>
#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/torch.h>

#include "serve.hpp"

namespace {

constexpr int warm_up = 5;
constexpr int steps = 20;

/// "mlp": 8 layers of 1024; "small": 200 tensors, 100 layers of 32.
torch::nn::Sequential make_model(const std::string& name) {
  const bool big = name == "mlp";
  const std::int64_t width = big ? 1024 : 32;
  torch::nn::Sequential model;
  for (int i = 0; i < (big ? 8 : 100); ++i) {
    model->push_back(torch::nn::Linear(width, width));
    model->push_back(torch::nn::ReLU());
  }
  return model;
}

void all_reduce_each(muster::ProcessGroup& group, const std::vector<torch::Tensor>& parameters) {
  for (const torch::Tensor& parameter : parameters) {
    std::vector<torch::Tensor> gradient{parameter.grad()};
    group.native()->allreduce(gradient)->wait();
    gradient[0].div_(group.size());
  }
}

/// The median of this rank's steps in milliseconds.
double train(muster::DDPStrategy& ddp, const std::string& how, const std::string& which) {
  torch::manual_seed(1);
  auto model = make_model(which);
  if (how == "muster")
    ddp.setup(*model);
  torch::optim::SGD sgd(model->parameters(), 1e-3);
  const auto input = torch::randn({32, which == "mlp" ? 1024 : 32});
  std::vector<double> times;
  for (int step = 0; step < warm_up + steps; ++step) {
    const auto start = bench::Clock::now();
    sgd.zero_grad();
    const auto loss = model->forward(input).pow(2).mean();
    if (how == "muster")
      ddp.backward(loss);
    else
      loss.backward();
    if (how == "each")
      all_reduce_each(ddp.group(), model->parameters());
    sgd.step();
    if (step >= warm_up)
      times.push_back(bench::ms_since(start));
  }
  std::nth_element(times.begin(), times.begin() + steps / 2, times.end());
  return times[steps / 2];
}

} // namespace

int main(int argc, char** argv) {
  muster::init(argc, argv);
  const std::string how = argc > 1 ? argv[1] : "muster"; // or "each", "alone"
  const std::string which = argc > 2 ? argv[2] : "mlp";
  return muster::guard([&] {
    muster::DDPStrategy ddp(
        muster::SpawnLauncher(muster::StartMethod::forkserver, 2, {.threads = 1}),
        {.device = "cpu"});
    return bench::serve([&] {
      const auto medians = ddp.launch(train, how, which);
      return *std::max_element(medians.begin(), medians.end());
    });
  });
}
