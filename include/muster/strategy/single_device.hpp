#pragma once

#include <muster/strategy/strategy.hpp>

namespace muster {

/// How SingleDeviceStrategy works.
struct SingleDeviceOptions {
  std::string device = "auto"; ///< "auto", "cpu" or "cuda"
};

/// One rank, one device. What runs with it runs with DDPStrategy as well.
class SingleDeviceStrategy : public Strategy {
public:
  /// Throws UsageError for a launcher with more than one rank.
  template <class L>
  requires std::derived_from<L, Launcher>
  explicit SingleDeviceStrategy(L launcher, SingleDeviceOptions options = {})
      : Strategy(std::move(launcher), options.device), options_(std::move(options)) {
    check_plan(this->launcher().nprocs().value_or(1));
  }

  Recipe recipe() const override { return recipe_of<SingleDeviceStrategy>(options_); }

  void setup(torch::nn::Module& module) override;
  void setup(const std::vector<at::Tensor>& parameters) override;
  void backward(const at::Tensor& loss) override;

protected:
  void check_plan(int ranks) const override;

private:
  SingleDeviceOptions options_;
};

} // namespace muster
