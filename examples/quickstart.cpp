#include <muster/muster.hpp>

#include <cstdio>

#include <torch/torch.h>

double train(muster::DDPStrategy& ddp, int steps) { // runs in every rank
  torch::nn::Linear model(8, 1);
  ddp.setup(*model); // to the device, rank 0's weights to all, buckets
  torch::optim::SGD sgd(model->parameters(), 0.1);
  double last = 0;
  for (int i = 0; i < steps; ++i) {
    auto x = torch::randn({32, 8}, ddp.device());
    auto loss = (model(x) - x.sum(1, true)).pow(2).mean();
    sgd.zero_grad();
    ddp.backward(loss); // averaged over ranks, overlapped with backward
    sgd.step();
    last = loss.item<double>();
  }
  return ddp.all_reduce(last, muster::ReduceOp::mean);
}

int main(int argc, char** argv) {
  muster::init(argc, argv); // first line: a started rank does its work in here and ends
  return muster::guard([] { // prints a failure's report, returns its exit code
    muster::DDPStrategy ddp{muster::SpawnLauncher{muster::StartMethod::forkserver, 4}};
    std::vector<double> losses = ddp.launch(train, 200); // a result per rank; throws RankFailure
    for (std::size_t rank = 0; rank < losses.size(); ++rank)
      std::printf("rank %zu: loss %.2e\n", rank, losses[rank]);
  });
}
