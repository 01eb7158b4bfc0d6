#pragma once

#include <muster/strategy/strategy.hpp>

namespace muster {

/// How DDPStrategy works.
struct DDPOptions {
  std::string device = "auto"; ///< "auto", "cpu" or "cuda"
  std::string backend = {};    ///< as in choose_backend
  double bucket_cap_mb = 25;   ///< MiB of gradients that are sent together, at most
  double first_bucket_mb = 1;  ///< the same for the bucket that is ready first
  bool find_unused_parameters =
      false; ///< allow losses that leave parameters out; costs a graph walk
  bool gradient_as_bucket_view = true; ///< gradients live in the buckets, which saves a copy
  bool broadcast_buffers = true;       ///< rank 0's buffers (batch norm) to all after each backward
};

class GradientReducer;

/// Distributed data parallel: every rank has the whole model and its own part of each batch;
/// gradients are averaged over the ranks while backward() computes them.
///
/// With equal shares, a loss that is a mean over the batch, and no layer that mixes the samples of
/// a batch (batch norm uses each rank's own statistics), training gives the same parameters as one
/// process with the whole batch, up to rounding, and the same bits on all ranks.
class DDPStrategy : public Strategy {
public:
  template <class L>
  requires std::derived_from<L, Launcher>
  explicit DDPStrategy(L launcher, DDPOptions options = {})
      : Strategy(std::move(launcher), options.device, options.backend),
        options_(std::move(options)) {
    check_options();
  }
  ~DDPStrategy() override;

  Recipe recipe() const override { return recipe_of<DDPStrategy>(options_); }
  const DDPOptions& options() const noexcept { return options_; }

  /// Moves the module to device(), compares names, shapes, dtypes and order of its parameters and
  /// buffers over the ranks, and gives all ranks the values of rank 0. Parameters that need no
  /// gradient are left alone from then on. Called again, it takes the place of the call before.
  /// Throws RendezvousError, the same on all ranks, if their models differ.
  void setup(torch::nn::Module& module) override;
  /// The same for a list, named by number in messages.
  void setup(const std::vector<at::Tensor>& parameters) override;

  /// Computes the gradients of `loss`, averages them over the ranks, and then gives all ranks the
  /// buffers of rank 0, ready for the next forward. All ranks must call it equally often.
  /// Gradients that were there before are added to this rank's part before the average.
  /// Throws Error that names the parameters that got no gradient.
  void backward(const at::Tensor& loss) override;

protected:
  void release() noexcept override;

private:
  struct Model;
  void check_options() const;
  void setup_model(Model model);

  DDPOptions options_;
  std::shared_ptr<GradientReducer> reducer_; // shared, so that the type may stay incomplete
  std::vector<at::Tensor> buffers_;
};

} // namespace muster
