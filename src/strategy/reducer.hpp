#pragma once

#include <muster/comm/process_group.hpp>

#include <memory>
#include <string>
#include <vector>

namespace muster {

/// A parameter or buffer, and where it stands in the model.
struct NamedTensor {
  std::string name;
  at::Tensor tensor;
  bool sparse_gradient = false;
};

struct ReducerOptions {
  std::size_t bucket_cap_bytes = 0;
  std::size_t first_bucket_bytes = 0;
  bool find_unused_parameters = false;
  bool gradient_as_bucket_view = true;
};

/// Averages gradients over ranks while a backward pass computes them: c10d::Reducer, driven from
/// backward() alone. Nothing has to happen before the forward pass, since Reducer watches only
/// gradients: buckets are rearranged, once, at the start of the second backward().
class GradientReducer {
public:
  /// `parameters` all need gradients, are not empty, and are the same on all ranks.
  GradientReducer(ProcessGroup& group,
                  std::vector<NamedTensor> parameters,
                  const ReducerOptions& options);
  GradientReducer(const GradientReducer&) = delete;
  GradientReducer& operator=(const GradientReducer&) = delete;
  ~GradientReducer();

  void backward(const at::Tensor& loss);

private:
  void check_unchanged() const;
  void hand_out_gradients();
  std::string names_without_gradient(const at::Tensor& loss) const;

  struct State;
  std::unique_ptr<State> state_;
};

/// Throws RendezvousError, the same on all ranks, that names the first of `tensors` in which the
/// ranks differ in number, order, name, dtype or shape.
void compare_models(ProcessGroup& group, const std::vector<NamedTensor>& tensors);

/// Gives all ranks rank 0's values, without touching the tensors' version counters.
void synchronize(ProcessGroup& group, const std::vector<at::Tensor>& tensors);

} // namespace muster
