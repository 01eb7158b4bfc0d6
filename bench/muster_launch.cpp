// Launches by muster: empty ranks, and ranks that make a group and reduce one number.
#include <muster/muster.hpp>

#include <string>

#include <torch/torch.h>

#include "serve.hpp"

namespace {

using muster::SpawnLauncher;
using muster::StartMethod;

void nothing(muster::World& /*world*/) {}

void first_all_reduce(muster::DDPStrategy& ddp) {
  const torch::Tensor sum = torch::ones({1});
  ddp.group().all_reduce(sum);
  if (sum.item<float>() != static_cast<float>(ddp.size()))
    throw std::runtime_error("the sum is wrong");
}

/// Says who it is, and waits for its end.
void sleep_in_group(muster::DDPStrategy& ddp) {
  first_all_reduce(ddp);
  std::cout << ::getpid() << std::endl;
  ::sleep(60);
}

muster::DDPStrategy strategy(StartMethod method, int ranks) {
  return muster::DDPStrategy(SpawnLauncher(method, ranks, {.on_failure = nullptr}),
                             {.device = "cpu"});
}

/// Rank 0 fails the first time, once all are there. Both times are told.
void fails_once(muster::World& world) {
  world.store->add("there", 1);
  if (world.attempt == 0 && world.rank == 0) {
    while (world.store->add("there", 0) < world.size)
      ::usleep(1000);
    std::cout << "failed " << bench::now_ns() << std::endl;
    ::_exit(1);
  }
  if (world.attempt == 0)
    ::sleep(60);
  std::cout << "runs " << bench::now_ns() << std::endl;
}

int restart(int ranks) {
  SpawnLauncher(StartMethod::forkserver, ranks, {.max_restarts = 1, .on_failure = nullptr})
      .run(fails_once);
  return 0;
}

/// One of the ranks is to be killed from outside; tells when launch() is back.
int watch(const std::string& method, int ranks) {
  try {
    strategy(muster::start_method_from(method), ranks).launch(sleep_in_group);
  } catch (const muster::RankFailure&) {
    std::cout << bench::now_ns() << std::endl;
  }
  return 0;
}

int run(const std::string& mode, int ranks, const std::string& method) {
  if (mode == "empty") {
    SpawnLauncher launcher(StartMethod::forkserver, ranks);
    return bench::serve_times([&] { launcher.run(nothing); });
  }
  if (mode == "watch")
    return watch(method, ranks);
  if (mode == "restart")
    return restart(ranks);
  auto ddp = strategy(StartMethod::forkserver, ranks);
  if (mode == "warm")
    return bench::serve_times([&] { ddp.launch(first_all_reduce); });
  if (mode == "once") {
    ddp.launch(first_all_reduce);
    return 0;
  }
  std::cerr << "usage: muster_launch empty|warm|once|restart RANKS, or watch RANKS METHOD\n";
  return 2;
}

} // namespace

int main(int argc, char** argv) {
  muster::init(argc, argv);
  return muster::guard([&] {
    return run(argc > 1 ? argv[1] : "",
               argc > 2 ? std::atoi(argv[2]) : 2,
               argc > 3 ? argv[3] : "forkserver");
  });
}
