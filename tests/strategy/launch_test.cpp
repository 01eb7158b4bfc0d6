#include <muster/muster.hpp>

#include <chrono>
#include <thread>

#include <unistd.h>

#include <torch/torch.h>

#include "catch.hpp"

using Catch::Contains;
using muster::DDPStrategy;
using muster::SpawnLauncher;
using muster::StartMethod;
using muster::Strategy;

namespace {

struct Scores {
  int rank = 0;
  at::Tensor weights;
  std::vector<at::Tensor> gradients;
};

Scores train(DDPStrategy& ddp, int steps, const at::Tensor& start) {
  torch::manual_seed(static_cast<std::uint64_t>(ddp.rank()));
  torch::nn::Linear model(4, 1);
  {
    const torch::NoGradGuard no_grad;
    model->weight.copy_(start);
  }
  ddp.setup(*model);
  torch::optim::SGD sgd(model->parameters(), 0.1);
  for (int step = 0; step < steps; ++step) {
    sgd.zero_grad();
    ddp.backward(model(torch::randn({8, 4})).pow(2).mean());
    sgd.step();
  }
  return {ddp.rank(), model->weight.detach(), {model->weight.grad(), model->bias.grad()}};
}

at::Tensor large(Strategy& strategy, std::int64_t count) {
  return torch::full({count}, strategy.rank());
}

int hook_order(Strategy& strategy) { return strategy.all_reduce(1); }

/// A strategy with options and hooks of its own.
class Counting : public DDPStrategy {
public:
  template <class L>
  explicit Counting(L launcher, muster::DDPOptions options = {}, int start = 0)
      : DDPStrategy(std::move(launcher), options), start_(start) {}
  muster::Recipe recipe() const override { return muster::recipe_of<Counting>(options(), start_); }
  int count() const { return start_; }

protected:
  void setup_environment() override { ++start_; }
  std::string decorate(const std::exception& /*error*/) override {
    return "the count was " + std::to_string(start_);
  }

private:
  int start_;
};

class Forgetful : public DDPStrategy {
public:
  using DDPStrategy::DDPStrategy;
};

int count_of(Counting& strategy, int more) { return strategy.count() + more; }

void fails(Counting& /*strategy*/) { throw std::runtime_error("out of luck"); }

void nested(Strategy& strategy) { strategy.launch(hook_order); }

void ends_badly(Strategy& strategy, int failing) {
  strategy.barrier();
  if (strategy.rank() == failing)
    throw std::runtime_error("the loss is not finite");
  strategy.barrier();
}

void stays_away(Strategy& strategy, int absent) {
  strategy.barrier();
  if (strategy.rank() == absent)
    for (;;)
      ::pause();
  strategy.all_reduce(1.0);
}

int evaluate(Strategy& strategy, int samples) {
  const muster::DistributedSampler sampler(static_cast<std::size_t>(samples),
                                           strategy.rank(),
                                           strategy.size(),
                                           {.remainder = muster::Remainder::keep});
  return strategy.all_reduce(static_cast<int>(sampler.size()));
}

/// A tag that only this job knows, summed over its ranks, many times.
double sum_of_tags(Strategy& strategy, double tag) {
  double sum = 0;
  for (int round = 0; round < 20; ++round)
    sum = strategy.all_reduce(tag);
  return sum;
}

/// What uses the threads of an OpenMP pool, and those of autograd.
double multiply(std::int64_t size) {
  const auto a = torch::ones({size, size}, torch::requires_grad());
  const auto product = torch::matmul(a, a).mean();
  product.backward();
  return product.item<double>() + a.grad()[0][0].item<double>() * static_cast<double>(size);
}

double multiply_in_rank(Strategy& strategy) {
  torch::set_num_threads(2);
  return strategy.all_reduce(multiply(500)) / strategy.size();
}

SpawnLauncher launcher(StartMethod method, int ranks) {
  return SpawnLauncher(method, ranks, {.on_failure = nullptr});
}

} // namespace

TEST_CASE("ranks train together by every start method", "[launch]") {
  const auto method = GENERATE(StartMethod::spawn, StartMethod::forkserver, StartMethod::fork);
  INFO(muster::to_string(method));
  DDPStrategy ddp{launcher(method, 3), {.device = "cpu"}};
  const std::vector<Scores> scores = ddp.launch(train, 5, torch::zeros({1, 4}));
  REQUIRE(scores.size() == 3);
  for (std::size_t rank = 0; rank < 3; ++rank) {
    CHECK(scores[rank].rank == static_cast<int>(rank));
    CHECK(torch::equal(scores[rank].weights, scores[0].weights));
    CHECK(torch::equal(scores[rank].gradients[1], scores[0].gradients[1]));
  }
  CHECK(ddp.last_report().ok());
}

TEST_CASE("large tensors come back from every rank", "[launch]") {
  DDPStrategy ddp{launcher(StartMethod::forkserver, 2), {.device = "cpu"}};
  const auto tensors = ddp.launch(large, 10'000'000);
  CHECK(tensors[1].sum().item<std::int64_t>() == 10'000'000);
}

TEST_CASE("one strategy launches again and again, and a function of Strategy& takes any",
          "[launch]") {
  DDPStrategy ddp{launcher(StartMethod::forkserver, 3)};
  for (int i = 0; i < 3; ++i)
    CHECK(ddp.launch(evaluate, 100) == std::vector{100, 100, 100});
  muster::SingleDeviceStrategy single{launcher(StartMethod::forkserver, 1)};
  CHECK(single.launch(evaluate, 7) == std::vector{7});
  CHECK(single.launch([](muster::SingleDeviceStrategy& s) { return s.size(); }) == std::vector{1});
}

TEST_CASE("a strategy of the user's own is made again in the rank", "[launch]") {
  Counting counting{launcher(StartMethod::forkserver, 2), {.device = "cpu"}, 41};
  CHECK(counting.launch(count_of, 100) == std::vector{142, 142});
}

TEST_CASE("a strategy decorates the report of a failure", "[launch]") {
  Counting counting{launcher(StartMethod::forkserver, 2), {.device = "cpu"}, 41};
  try {
    counting.launch(fails);
    FAIL("it was not told");
  } catch (const muster::RankFailure& failure) {
    CHECK(failure.first().message == "out of luck\nthe count was 42");
  }
}

TEST_CASE("a strategy without a recipe of its own, or a function for another one, is refused",
          "[launch]") {
  Forgetful forgetful{launcher(StartMethod::forkserver, 2)};
  CHECK_THROWS_WITH(forgetful.launch(evaluate, 1),
                    Contains("Forgetful has no recipe") && Contains("muster::DDPStrategy") &&
                        Contains("recipe_of"));
  DDPStrategy ddp{launcher(StartMethod::forkserver, 2)};
  CHECK_THROWS_WITH(ddp.launch(count_of, 1),
                    Contains("Counting&") && Contains("muster::DDPStrategy"));
  CHECK_THROWS_AS(ddp.launch(count_of, 1), muster::UsageError);
  CHECK_THROWS_WITH(muster::SingleDeviceStrategy(launcher(StartMethod::forkserver, 2)),
                    Contains("one rank, not 2"));
}

TEST_CASE("a launch inside of a rank is refused", "[launch]") {
  DDPStrategy ddp{launcher(StartMethod::forkserver, 1)};
  try {
    ddp.launch(nested);
    FAIL("it was not refused");
  } catch (const muster::RankFailure& failure) {
    CHECK_THAT(failure.first().message, Contains("inside of a rank"));
  }
}

TEST_CASE("the rank that threw is the answer, not those that lost it", "[launch]") {
  const int failing = GENERATE(0, 1, 2);
  DDPStrategy ddp{launcher(StartMethod::forkserver, 3), {.device = "cpu"}};
  try {
    ddp.launch(ends_badly, failing);
    FAIL("it was not told");
  } catch (const muster::RankFailure& failure) {
    CHECK(failure.first().rank == failing);
    CHECK(failure.first().message == "the loss is not finite");
  }
}

TEST_CASE("a hang names the rank that is behind and the collective of those that wait",
          "[launch]") {
  DDPStrategy ddp{
      SpawnLauncher{StartMethod::forkserver, 3, {.hang_timeout = std::chrono::milliseconds(500)}},
      {.device = "cpu"}};
  try {
    ddp.launch(stays_away, 1);
    FAIL("it was not told");
  } catch (const muster::Timeout& timeout) {
    CHECK_THAT(timeout.what(),
               Contains("no rank has made progress for 0.5 s: rank 1 (pid") &&
                   Contains("is behind; waiting: rank 0") && Contains("in all_reduce"));
  }
  CHECK_THAT(ddp.launcher().last_report().ranks[1].backtrace.lines(), Contains("stays_away"));
}

TEST_CASE("jobs that start at the same moment do not meet", "[launch]") {
  for (int round = 0; round < 20; ++round) {
    std::vector<std::thread> jobs;
    std::vector<std::vector<double>> sums(2);
    for (std::size_t job = 0; job < 2; ++job)
      jobs.emplace_back([&sums, job] {
        DDPStrategy ddp{launcher(StartMethod::forkserver, 2), {.device = "cpu"}};
        sums[job] = ddp.launch(sum_of_tags, job == 0 ? 1.0 : 100.0);
      });
    for (std::thread& job : jobs)
      job.join();
    CHECK(sums[0] == std::vector<double>{2, 2});
    CHECK(sums[1] == std::vector<double>{200, 200});
  }
}

// Last, since this process has threads from here on.
TEST_CASE("after compute threads were used, fork is refused and the others work", "[launch]") {
  torch::set_num_threads(2);
  const double expected = multiply(500);
  for (const auto method : {StartMethod::spawn, StartMethod::forkserver}) {
    DDPStrategy ddp{launcher(method, 2), {.device = "cpu"}};
    CHECK(ddp.launch(multiply_in_rank) == std::vector<double>{expected, expected});
  }
  DDPStrategy forked{launcher(StartMethod::fork, 2), {.device = "cpu"}};
  CHECK_THROWS_WITH(forked.launch(multiply_in_rank),
                    Contains("threads") && Contains("OpenMP") &&
                        Contains("StartMethod::forkserver"));
}
