#include <muster/launch/error.hpp>
#include <muster/strategy/ddp.hpp>
#include <muster/strategy/single_device.hpp>

#include <functional>

#include <torch/torch.h>

#include "catch.hpp"
#include "comm/ranks.hpp"

using Catch::Contains;
using muster::DDPOptions;
using muster::DDPStrategy;
using muster::World;
using muster::detail::RankLauncher;
using muster::detail::StrategyInRank;
using Tensors = std::vector<at::Tensor>;

namespace {

struct Mlp : torch::nn::Module {
  explicit Mlp(int width = 16) {
    a = register_module("a", torch::nn::Linear(8, width));
    b = register_module("b", torch::nn::Linear(width, width));
    c = register_module("c", torch::nn::Linear(width, 1));
  }
  at::Tensor forward(const at::Tensor& x) {
    return c(torch::tanh(b(torch::tanh(a(x.to(a->weight.dtype()))))));
  }
  torch::nn::Linear a{nullptr}, b{nullptr}, c{nullptr};
};

struct Embedded : torch::nn::Module {
  explicit Embedded(bool sparse = false) {
    table = register_module(
        "table", torch::nn::Embedding(torch::nn::EmbeddingOptions(10, 6).sparse(sparse)));
    head = register_module("head", torch::nn::Linear(6, 1));
  }
  at::Tensor forward(const at::Tensor& x) {
    return head(table((x.select(1, 0).abs() * 4).to(torch::kLong).clamp(0, 9)));
  }
  torch::nn::Embedding table{nullptr};
  torch::nn::Linear head{nullptr};
};

struct SparselyEmbedded : Embedded {
  SparselyEmbedded() : Embedded(true) {}
};

struct Frozen : Mlp {
  Frozen() { b->weight.requires_grad_(false); }
};

struct Normed : torch::nn::Module {
  Normed() {
    a = register_module("a", torch::nn::Linear(8, 8));
    norm = register_module("norm", torch::nn::BatchNorm1d(8));
  }
  at::Tensor forward(const at::Tensor& x) { return norm(a(x.to(a->weight.dtype()))).sum(1, true); }
  torch::nn::Linear a{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
};

constexpr int steps = 20;
constexpr int batch = 24; // divides by 2, 3 and 4

/// The batches of all ranks together, the same for everyone.
at::Tensor batch_of(int step) {
  torch::Generator generator = at::detail::createCPUGenerator(static_cast<std::uint64_t>(step) + 1);
  return torch::randn({batch, 8}, generator, torch::kDouble);
}

at::Tensor shard_of(const at::Tensor& whole, const World& world) {
  return whole.chunk(world.size, 0)[static_cast<std::size_t>(world.rank)];
}

at::Tensor loss_of(const at::Tensor& output, const at::Tensor& x) {
  return (output - x.sum(1, true).to(output.dtype())).pow(2).mean();
}

template <class M>
void make_equal(M& model, at::ScalarType dtype, int seed) {
  const torch::NoGradGuard no_grad;
  model.to(dtype);
  torch::Generator generator = at::detail::createCPUGenerator(static_cast<std::uint64_t>(seed));
  for (at::Tensor& parameter : model.parameters())
    parameter.copy_(torch::randn(parameter.sizes(), generator, torch::kDouble) * 0.3);
}

Tensors copies(const Tensors& tensors) {
  Tensors all;
  for (const at::Tensor& each : tensors)
    all.push_back(each.detach().clone());
  return all;
}

/// What one process computes with whole batches.
template <class M>
Tensors alone(at::ScalarType dtype) {
  M model;
  make_equal(model, dtype, 0);
  torch::optim::SGD sgd(model.parameters(), 0.05);
  for (int step = 0; step < steps; ++step) {
    const at::Tensor x = batch_of(step);
    sgd.zero_grad();
    loss_of(model.forward(x), x).backward();
    sgd.step();
  }
  return copies(model.parameters());
}

struct Way {
  bool as_list = false;
  bool set_to_none = true;
  DDPOptions options = {.device = "cpu"};
};

/// What every rank computes with its shard; rank 0's first values differ from the others'.
template <class M>
std::vector<Tensors> together(int ranks, at::ScalarType dtype, const Way& way = {}) {
  return run_ranks(ranks, [&](World& world) {
    DDPStrategy ddp(RankLauncher(), way.options);
    StrategyInRank in_rank(ddp, world);
    M model;
    make_equal(model, dtype, world.rank);
    if (way.as_list)
      ddp.setup(model.parameters());
    else
      ddp.setup(model);
    torch::optim::SGD sgd(model.parameters(), 0.05);
    for (int step = 0; step < steps; ++step) {
      const at::Tensor x = shard_of(batch_of(step), world);
      sgd.zero_grad(way.set_to_none);
      ddp.backward(loss_of(model.forward(x), x));
      sgd.step();
    }
    Tensors result = copies(model.parameters());
    in_rank.leave();
    return result;
  });
}

void check_close(const std::vector<Tensors>& ranks, const Tensors& expected, double tolerance) {
  for (const Tensors& rank : ranks)
    for (std::size_t i = 0; i < expected.size(); ++i) {
      INFO("parameter " << i);
      CHECK(torch::equal(rank[i], ranks[0][i]));
      CHECK((rank[i] - expected[i]).abs().max().item<double>() <= tolerance);
    }
}

template <class M>
void check_like_alone(const Way& way = {}) {
  for (const int ranks : {2, 3, 4}) {
    INFO(ranks << " ranks");
    check_close(together<M>(ranks, torch::kDouble, way), alone<M>(torch::kDouble), 1e-12);
    check_close(together<M>(ranks, torch::kFloat, way), alone<M>(torch::kFloat), 1e-6);
  }
}

template <class M>
std::vector<std::string> setup_errors(int ranks, std::function<void(M&, int rank)> change) {
  std::vector<std::string> errors;
  for (const auto& each : try_ranks(ranks, [&](World& world) {
         DDPStrategy ddp(RankLauncher(), {.device = "cpu"});
         StrategyInRank in_rank(ddp, world);
         M model;
         change(model, world.rank);
         ddp.setup(model);
         return 0;
       }))
    errors.push_back(each.error);
  return errors;
}

} // namespace

TEST_CASE("twenty steps equal one process with the whole batch", "[ddp]") {
  SECTION("a plain model") { check_like_alone<Mlp>(); }
  SECTION("an embedding") { check_like_alone<Embedded>(); }
  SECTION("an embedding with sparse gradients") { check_like_alone<SparselyEmbedded>(); }
  SECTION("a frozen parameter") { check_like_alone<Frozen>(); }
  SECTION("a list of parameters") {
    // The list has no buffers and no frozen parameters to give to the others.
    check_like_alone<Mlp>({.as_list = true});
  }
  SECTION("gradients that are zeroed, not dropped") {
    check_like_alone<Mlp>({.set_to_none = false});
  }
  SECTION("gradients outside of the buckets") {
    check_like_alone<Mlp>({.options = {.device = "cpu", .gradient_as_bucket_view = false}});
    check_like_alone<Mlp>(
        {.set_to_none = false, .options = {.device = "cpu", .gradient_as_bucket_view = false}});
  }
  SECTION("many small buckets") {
    check_like_alone<Mlp>(
        {.options = {.device = "cpu", .bucket_cap_mb = 0.0005, .first_bucket_mb = 0.0001}});
  }
  SECTION("a search for unused parameters") {
    check_like_alone<Mlp>({.options = {.device = "cpu", .find_unused_parameters = true}});
  }
}

TEST_CASE("batch norm uses each rank's statistics, and rank 0's running ones", "[ddp]") {
  constexpr int ranks = 2;
  // The reference: both shards through copies of one model, gradients averaged by hand.
  Normed first;
  Normed second;
  make_equal(first, torch::kDouble, 0);
  make_equal(second, torch::kDouble, 0);
  torch::optim::SGD sgd_first(first.parameters(), 0.05);
  torch::optim::SGD sgd_second(second.parameters(), 0.05);
  for (int step = 0; step < steps; ++step) {
    const auto shards = batch_of(step).chunk(ranks, 0);
    sgd_first.zero_grad();
    sgd_second.zero_grad();
    loss_of(first.forward(shards[0]), shards[0]).backward();
    loss_of(second.forward(shards[1]), shards[1]).backward();
    for (std::size_t i = 0; i < first.parameters().size(); ++i) {
      const at::Tensor mean = (first.parameters()[i].grad() + second.parameters()[i].grad()) / 2;
      first.parameters()[i].mutable_grad() = mean;
      second.parameters()[i].mutable_grad() = mean.clone();
    }
    sgd_first.step();
    sgd_second.step();
  }
  const auto results = run_ranks(ranks, [](World& world) {
    DDPStrategy ddp(RankLauncher(), {.device = "cpu"});
    StrategyInRank in_rank(ddp, world);
    Normed model;
    make_equal(model, torch::kDouble, world.rank);
    ddp.setup(model);
    torch::optim::SGD sgd(model.parameters(), 0.05);
    for (int step = 0; step < steps; ++step) {
      const at::Tensor x = shard_of(batch_of(step), world);
      sgd.zero_grad();
      ddp.backward(loss_of(model.forward(x), x));
      sgd.step();
    }
    Tensors all = copies(model.parameters());
    for (const at::Tensor& buffer : model.buffers())
      all.push_back(buffer.clone());
    in_rank.leave();
    return all;
  });
  Tensors expected = copies(first.parameters());
  for (const at::Tensor& buffer : first.buffers())
    expected.push_back(buffer);
  check_close(results, expected, 1e-12);
}

TEST_CASE("two forward passes before one backward work with buffers", "[ddp]") {
  const auto results = run_ranks(2, [](World& world) {
    DDPStrategy ddp(RankLauncher(), {.device = "cpu"});
    StrategyInRank in_rank(ddp, world);
    Normed model;
    ddp.setup(model);
    for (int step = 0; step < 3; ++step) {
      model.zero_grad();
      const at::Tensor x = shard_of(batch_of(step), world).to(torch::kFloat);
      ddp.backward(model.forward(x).sum() + model.forward(x * 2).pow(2).sum());
    }
    Tensors gradients;
    for (const at::Tensor& each : model.parameters())
      gradients.push_back(each.grad().clone());
    in_rank.leave();
    return gradients;
  });
  for (std::size_t i = 0; i < results[0].size(); ++i)
    CHECK(torch::equal(results[0][i], results[1][i]));
}

TEST_CASE("setup may come again, for the same model or another", "[ddp]") {
  const auto results = run_ranks(2, [](World& world) {
    DDPStrategy ddp(RankLauncher(), {.device = "cpu"});
    StrategyInRank in_rank(ddp, world);
    Mlp first;
    Mlp second(4);
    Tensors gradients;
    for (int round = 0; round < 3; ++round)
      for (Mlp* model : {&first, &second}) {
        ddp.setup(*model);
        torch::optim::SGD sgd(model->parameters(), 0.05);
        for (int step = 0; step < 3; ++step) {
          sgd.zero_grad(step % 2 == 0);
          const at::Tensor x = shard_of(batch_of(step), world);
          ddp.backward(loss_of(model->forward(x), x));
          sgd.step();
        }
        gradients.push_back(model->b->weight.grad().clone());
      }
    in_rank.leave();
    return gradients;
  });
  for (std::size_t i = 0; i < results[0].size(); ++i)
    CHECK(torch::equal(results[0][i], results[1][i]));
}

TEST_CASE("gradients add up where nobody zeroes them", "[ddp]") {
  const auto results = run_ranks(2, [](World& world) {
    DDPStrategy ddp(RankLauncher(), {.device = "cpu"});
    StrategyInRank in_rank(ddp, world);
    const at::Tensor w = torch::zeros({3}).requires_grad_(true);
    ddp.setup(Tensors{w});
    for (int step = 0; step < 3; ++step)
      ddp.backward((w * (world.rank + 1)).sum());
    const float gradient = w.grad()[0].item<float>();
    in_rank.leave();
    return gradient;
  });
  CHECK(results == std::vector{4.5F, 4.5F});
}

TEST_CASE("a tensor under two names counts once", "[ddp]") {
  struct Tied : torch::nn::Module {
    Tied() {
      x = register_parameter("x", torch::ones({2}));
      y = register_parameter("y", x);
    }
    at::Tensor x, y;
  };
  const auto results = run_ranks(2, [](World& world) {
    DDPStrategy ddp(RankLauncher(), {.device = "cpu"});
    StrategyInRank in_rank(ddp, world);
    Tied model;
    ddp.setup(model);
    for (int step = 0; step < 3; ++step) {
      model.zero_grad();
      ddp.backward((model.x * (world.rank + 1)).sum() + model.y.sum());
    }
    const float gradient = model.x.grad()[0].item<float>();
    in_rank.leave();
    return gradient;
  });
  CHECK(results == std::vector{2.5F, 2.5F});
}

TEST_CASE("models that differ are the same error on all ranks, and nobody hangs", "[ddp]") {
  const auto check = [](const std::vector<std::string>& errors, const std::string& text) {
    for (const std::string& error : errors)
      CHECK_THAT(error, Contains(text));
    for (const std::string& error : errors)
      CHECK(error == errors[0]);
  };
  SECTION("shapes") {
    check(setup_errors<Mlp>(3, [](Mlp& model, int rank) { model = Mlp(rank == 1 ? 17 : 16); }),
          "parameter or buffer 0 is ranks 0 and 2: 'a.weight' Float [16, 8]; rank 1: 'a.weight' "
          "Float "
          "[17, 8]");
  }
  SECTION("dtypes") {
    check(setup_errors<Mlp>(
              2, [](Mlp& model, int rank) { model.to(rank ? torch::kDouble : torch::kFloat); }),
          "rank 1: 'a.weight' Double");
  }
  SECTION("order and names") {
    struct Either : torch::nn::Module {};
    check(setup_errors<Either>(2,
                               [](Either& model, int rank) {
                                 model.register_parameter(rank ? "y" : "x", torch::ones({2}));
                                 model.register_parameter(rank ? "x" : "y", torch::ones({2}));
                               }),
          "rank 0: 'x' Float [2]; rank 1: 'y' Float [2]");
  }
  SECTION("number") {
    check(setup_errors<Mlp>(2,
                            [](Mlp& model, int rank) {
                              if (rank == 0)
                                model.register_parameter("z", torch::ones({2}));
                            }),
          "'z'");
  }
  SECTION("frozen on one rank only") {
    check(setup_errors<Mlp>(
              2, [](Mlp& model, int rank) { model.b->weight.requires_grad_(rank == 0); }),
          "'b.weight'");
  }
  SECTION("buffers") {
    check(setup_errors<Mlp>(
              2,
              [](Mlp& model, int rank) { model.register_buffer("mask", torch::ones({2 + rank})); }),
          "'mask'");
  }
}

TEST_CASE("a parameter that the loss does not use is named", "[ddp]") {
  const auto run = [](bool find_unused) {
    return try_ranks(2, [&](World& world) {
      DDPStrategy ddp(RankLauncher(), {.device = "cpu", .find_unused_parameters = find_unused});
      StrategyInRank in_rank(ddp, world);
      Mlp model;
      ddp.setup(model);
      for (int step = 0; step < 4; ++step) {
        model.zero_grad();
        const at::Tensor h = model.a(shard_of(batch_of(step), world).to(torch::kFloat));
        ddp.backward((step % 2 == 0 ? h : model.b(h)).sum());
      }
      const bool untouched = !model.c->weight.grad().defined();
      in_rank.leave();
      return untouched;
    });
  };
  for (const auto& each : run(false))
    CHECK_THAT(each.error,
               Contains("does not depend on 'b.weight', 'b.bias', 'c.weight', 'c.bias'") &&
                   Contains("find_unused_parameters"));
  for (const auto& each : run(true)) {
    CHECK(each.error.empty());
    CHECK(each.value == true);
  }
}

TEST_CASE("a loss that uses none of the parameters is an error", "[ddp]") {
  for (const auto& each : try_ranks(2, [](World& world) {
         DDPStrategy ddp(RankLauncher(), {.device = "cpu"});
         StrategyInRank in_rank(ddp, world);
         Mlp model;
         Mlp other;
         ddp.setup(model);
         ddp.backward(model.forward(batch_of(0)).sum());
         ddp.backward(other.forward(batch_of(0)).sum());
         return 0;
       }))
    CHECK_THAT(each.error, Contains("none of the parameters"));
}

TEST_CASE("freezing after setup is an error that names the parameter", "[ddp]") {
  for (const auto& each : try_ranks(2, [](World& world) {
         DDPStrategy ddp(RankLauncher(), {.device = "cpu"});
         StrategyInRank in_rank(ddp, world);
         Mlp model;
         ddp.setup(model);
         model.b->bias.requires_grad_(false);
         ddp.backward(model.forward(batch_of(0)).sum());
         return 0;
       }))
    CHECK_THAT(each.error, Contains("'b.bias'") && Contains("setup()"));
}

TEST_CASE("a model without anything to train is synchronized all the same", "[ddp]") {
  const auto results = run_ranks(2, [](World& world) {
    DDPStrategy ddp(RankLauncher(), {.device = "cpu"});
    StrategyInRank in_rank(ddp, world);
    torch::nn::Linear model(2, 2);
    for (at::Tensor& parameter : model->parameters())
      parameter.requires_grad_(false).fill_(world.rank);
    ddp.setup(*model);
    const float value = model->weight[0][0].item<float>();
    std::string error;
    try {
      ddp.backward(torch::ones({}).requires_grad_(true));
    } catch (const muster::UsageError& caught) {
      error = caught.what();
    }
    in_rank.leave();
    return std::pair(value, error.find("setup()") != std::string::npos);
  });
  CHECK(results[1] == std::pair(0.0F, true));
}

TEST_CASE("options and devices that cannot be are refused where they are given", "[strategy]") {
  CHECK_THROWS_WITH(DDPStrategy(RankLauncher(), {.bucket_cap_mb = 0}), Contains("bucket_cap_mb"));
  CHECK_THROWS_WITH(DDPStrategy(RankLauncher(), {.device = "gpu"}), Contains("no device 'gpu'"));
  DDPStrategy ddp(RankLauncher(), {});
  CHECK_THROWS_WITH(ddp.group(), Contains("in a rank"));
  CHECK_THROWS_WITH(ddp.device(), Contains("in a rank"));
  World world;
  DDPStrategy cuda(RankLauncher(), {.device = "cuda"});
  if (!torch::cuda::is_available())
    CHECK_THROWS_WITH(StrategyInRank(cuda, world), Contains("CUDA device 0"));
}

TEST_CASE("a single device trains without a group, and takes one rank", "[strategy]") {
  World world;
  muster::SingleDeviceStrategy single{RankLauncher()};
  StrategyInRank in_rank(single, world);
  Mlp model;
  single.setup(model);
  single.backward(model.forward(batch_of(0)).sum());
  CHECK(model.a->weight.grad().defined());
  CHECK(single.all_reduce(2.5, muster::ReduceOp::mean) == 2.5);
  CHECK(single.is_rank_zero());
  in_rank.leave();
  world.size = 2;
  CHECK_THROWS_WITH(StrategyInRank(single, world), Contains("not 2"));
}
