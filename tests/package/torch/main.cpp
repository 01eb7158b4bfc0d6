#include <cstdio>
#include <vector>

#include "train.hpp"

int main(int argc, char** argv) {
  muster::init(argc, argv);
  return muster::guard([] {
    muster::DDPStrategy ddp{muster::SpawnLauncher{muster::StartMethod::forkserver, 2}};
    const std::vector<double> losses = ddp.launch(train, 200);
    std::printf("%zu ranks, loss %g\n", losses.size(), losses.at(0));
    // Both have the mean over the ranks, and the model has learned the sum.
    return losses.size() == 2 && losses[0] == losses[1] && losses[0] < 1e-3 ? 0 : 1;
  });
}
