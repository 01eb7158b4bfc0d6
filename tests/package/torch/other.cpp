#include <torch/torch.h>

#include "train.hpp"

double train(muster::DDPStrategy& ddp, int steps) {
  torch::nn::Linear model(8, 1);
  ddp.setup(*model);
  torch::optim::SGD sgd(model->parameters(), 0.1);
  double last = 0;
  for (int i = 0; i < steps; ++i) {
    auto x = torch::randn({32, 8}, ddp.device());
    auto loss = (model(x) - x.sum(1, true)).pow(2).mean();
    sgd.zero_grad();
    ddp.backward(loss);
    sgd.step();
    last = loss.item<double>();
  }
  return ddp.all_reduce(last, muster::ReduceOp::mean);
}
