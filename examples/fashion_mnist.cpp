// Trains a small convolutional network on Fashion-MNIST with any number of ranks.
#include <muster/muster.hpp>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <optional>

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <torch/torch.h>

#include "idx.hpp"

namespace {

struct Settings {
  int epochs = 3;
  int batch = 128; // samples per step, over all ranks
  double lr = 0.05;
  std::uint64_t seed = 1;
};

/// Images as bytes [n, 28, 28], labels as int64 [n].
struct Samples {
  at::Tensor images;
  at::Tensor labels;
};

struct Data {
  Samples train;
  Samples test;
};

struct Epoch {
  double loss = 0;
  double accuracy = 0; // on the test set
  double samples_per_second = 0;
  double seconds = 0;
};

struct Result {
  int rank = 0;
  int size = 1; // of the world
  std::vector<Epoch> epochs;
};

struct NetImpl : torch::nn::Module {
  NetImpl() {
    first = register_module("first", torch::nn::Conv2d(1, 16, 3));
    second = register_module("second", torch::nn::Conv2d(16, 32, 3));
    hidden = register_module("hidden", torch::nn::Linear(32 * 5 * 5, 64));
    out = register_module("out", torch::nn::Linear(64, 10));
  }
  at::Tensor forward(at::Tensor x) {
    x = torch::max_pool2d(torch::relu(first(x)), 2);
    x = torch::max_pool2d(torch::relu(second(x)), 2);
    return out(torch::relu(hidden(x.flatten(1))));
  }
  torch::nn::Conv2d first{nullptr}, second{nullptr};
  torch::nn::Linear hidden{nullptr}, out{nullptr};
};
TORCH_MODULE(Net);

/// The samples of a shard, one batch after another.
class Batches {
public:
  Batches(const Samples& samples, const std::vector<std::size_t>& indices, std::size_t batch)
      : samples_(samples),
        indices_(torch::tensor(std::vector<std::int64_t>(indices.begin(), indices.end()))),
        batch_(static_cast<std::int64_t>(batch)) {}

  std::int64_t count() const { return (indices_.numel() + batch_ - 1) / batch_; }

  Samples get(std::int64_t number, at::Device device) const {
    const at::Tensor picked = indices_.slice(0, number * batch_, (number + 1) * batch_);
    const at::Tensor images = samples_.images.index_select(0, picked).to(device, at::kFloat);
    return {images.unsqueeze(1).div_(255).sub_(0.286).div_(0.353),
            samples_.labels.index_select(0, picked).to(device)};
  }

private:
  Samples samples_;
  at::Tensor indices_;
  std::int64_t batch_;
};

/// One line that is drawn over and over, on a terminal only.
class ProgressBar {
public:
  ProgressBar(bool shown, std::string title) : shown_(shown), title_(std::move(title)) {}
  void show(std::int64_t done, std::int64_t all) const {
    constexpr std::int64_t width = 40;
    if (!shown_ || (done % 8 != 0 && done != all))
      return;
    const auto filled = static_cast<std::size_t>(done * width / all);
    fmt::print("\r{} [{:<{}}] {}/{}", title_, std::string(filled, '='), width, done, all);
    std::fflush(stdout);
  }
  void clear() const {
    if (shown_)
      fmt::print("\r\033[K");
  }

private:
  bool shown_;
  std::string title_;
};

/// The share of the test set that is classified rightly; every image counts once, whatever the
/// number of ranks.
double evaluate(muster::Strategy& strategy, Net& net, const Samples& test) {
  const torch::NoGradGuard no_grad;
  net->eval();
  const muster::DistributedSampler sampler(
      static_cast<std::size_t>(test.labels.numel()),
      strategy.rank(),
      strategy.size(),
      {.shuffle = false, .remainder = muster::Remainder::keep});
  const Batches batches(test, sampler.indices(), 500);
  std::int64_t right = 0;
  for (std::int64_t i = 0; i < batches.count(); ++i) {
    const auto [images, labels] = batches.get(i, strategy.device());
    right += net->forward(images).argmax(1).eq(labels).sum().item<std::int64_t>();
  }
  net->train();
  const std::int64_t seen = strategy.all_reduce(static_cast<std::int64_t>(sampler.size()));
  return static_cast<double>(strategy.all_reduce(right)) / static_cast<double>(seen);
}

/// One pass over this rank's shard. Returns the mean loss over all ranks.
double train_epoch(muster::Strategy& strategy,
                   Net& net,
                   torch::optim::Optimizer& optimizer,
                   const Batches& batches,
                   const ProgressBar& bar) {
  at::Tensor total = torch::zeros({}, strategy.device());
  for (std::int64_t i = 0; i < batches.count(); ++i) {
    const auto [images, labels] = batches.get(i, strategy.device());
    optimizer.zero_grad();
    const at::Tensor loss = torch::nn::functional::cross_entropy(net->forward(images), labels);
    strategy.backward(loss);
    optimizer.step();
    total += loss.detach();
    bar.show(i + 1, batches.count());
  }
  bar.clear();
  return strategy.all_reduce(total.item<double>() / static_cast<double>(batches.count()),
                             muster::ReduceOp::mean);
}

/// Lowers the learning rate evenly, from the whole in the first epoch.
void set_rate(torch::optim::SGD& sgd, const Settings& settings, int epoch) {
  const double left = 1.0 - static_cast<double>(epoch) / settings.epochs;
  for (auto& group : sgd.param_groups())
    group.options().set_lr(settings.lr * left);
}

/// Runs in every rank.
Result train(muster::Strategy& strategy, const Settings& settings, const Data& data) {
  torch::manual_seed(settings.seed);
  Net net;
  strategy.setup(*net);
  torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(settings.lr).momentum(0.9));
  const auto samples = static_cast<std::size_t>(data.train.labels.numel());
  muster::DistributedSampler sampler(
      samples, strategy.rank(), strategy.size(), {.seed = settings.seed});
  const auto batch = static_cast<std::size_t>(std::max(1, settings.batch / strategy.size()));
  const bool terminal = ::isatty(STDOUT_FILENO) == 1;
  Result result{strategy.rank(), strategy.size(), {}};
  for (int number = 0; number < settings.epochs; ++number) {
    const auto start = std::chrono::steady_clock::now();
    sampler.set_epoch(static_cast<std::uint64_t>(number));
    set_rate(sgd, settings, number);
    const ProgressBar bar(strategy.is_rank_zero() && terminal,
                          fmt::format("epoch {}/{}", number + 1, settings.epochs));
    Epoch epoch;
    epoch.loss =
        train_epoch(strategy, net, sgd, Batches(data.train, sampler.indices(), batch), bar);
    epoch.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    epoch.samples_per_second = static_cast<double>(samples) / epoch.seconds;
    epoch.accuracy = evaluate(strategy, net, data.test);
    result.epochs.push_back(epoch);
    if (strategy.is_rank_zero())
      fmt::print("epoch {}: loss {:.4f}, test accuracy {:.4f}, {:.0f} samples/s, {:.1f} s\n",
                 number + 1,
                 epoch.loss,
                 epoch.accuracy,
                 epoch.samples_per_second,
                 epoch.seconds);
    std::fflush(stdout);
  }
  return result;
}

at::Tensor to_tensor(const Idx& idx) {
  at::Tensor tensor = torch::empty(idx.sizes, torch::kByte);
  std::memcpy(tensor.mutable_data_ptr(), idx.bytes.data(), idx.bytes.size());
  return tensor;
}

Samples load(const std::string& folder, const std::string& name) {
  const Idx images = read_idx(fmt::format("{}/{}-images-idx3-ubyte", folder, name), 3);
  const Idx labels = read_idx(fmt::format("{}/{}-labels-idx1-ubyte", folder, name), 1);
  if (images.sizes[0] != labels.sizes[0] || images.sizes[0] == 0)
    throw std::runtime_error(fmt::format("{} has {} images, but {} has {} labels",
                                         images.file,
                                         images.sizes[0],
                                         labels.file,
                                         labels.sizes[0]));
  return {to_tensor(images), to_tensor(labels).to(torch::kLong)};
}

void print_table(const std::string& title, const std::vector<Epoch>& epochs) {
  fmt::print("\n{}\n{:>5}  {:>8}  {:>13}  {:>9}  {:>7}\n",
             title,
             "epoch",
             "loss",
             "test accuracy",
             "samples/s",
             "seconds");
  for (std::size_t i = 0; i < epochs.size(); ++i)
    fmt::print("{:>5}  {:>8.4f}  {:>13.4f}  {:>9.0f}  {:>7.1f}\n",
               i + 1,
               epochs[i].loss,
               epochs[i].accuracy,
               epochs[i].samples_per_second,
               epochs[i].seconds);
}

} // namespace

int main(int argc, char** argv) {
  muster::init(argc, argv);
  Settings settings;
  std::optional<int> nprocs;
  std::string start_method = "forkserver";
  std::string strategy = "ddp";
  std::string folder = "/usr/share/datasets/fashion-mnist";
  CLI::App app("Trains a small network on Fashion-MNIST with one or several ranks.");
  app.add_option("--nprocs", nprocs, "ranks; default: what the environment says, else 1");
  app.add_option("--start-method", start_method, "spawn, fork or forkserver")
      ->capture_default_str();
  app.add_option("--strategy", strategy, "single or ddp")
      ->check(CLI::IsMember({"single", "ddp"}))
      ->capture_default_str();
  app.add_option("--epochs", settings.epochs, "passes over the data")->capture_default_str();
  app.add_option("--batch", settings.batch, "samples per step, over all ranks")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--lr", settings.lr, "learning rate of the first epoch; falls from there")
      ->capture_default_str();
  app.add_option("--seed", settings.seed, "of weights and order")->capture_default_str();
  app.add_option("--data", folder, "folder with the four files, gzipped or not")
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  return muster::guard([&] {
    muster::SpawnLauncher launcher{muster::start_method_from(start_method), nprocs};
    const Data data{load(folder, "train"), load(folder, "t10k")};
    std::vector<Result> ranks;
    if (strategy == "single") {
      muster::SingleDeviceStrategy single{std::move(launcher)};
      ranks = single.launch(train, settings, data);
    } else {
      muster::DDPStrategy ddp{std::move(launcher)};
      ranks = ddp.launch(train, settings, data);
    }
    // In a world that others created there is one result, that of this process.
    const Result& first = ranks.front();
    if (first.rank == 0)
      print_table(fmt::format("{} ranks, {}, {}", first.size, strategy, start_method),
                  first.epochs);
  });
}
