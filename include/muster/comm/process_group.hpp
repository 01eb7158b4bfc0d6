#pragma once

#include <muster/comm/backend.hpp>
#include <muster/comm/reduce_op.hpp>
#include <muster/comm/tensor_codec.hpp>
#include <muster/comm/world.hpp>

#include <concepts>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <variant>
#include <vector>

namespace c10d {
class ProcessGroup;
} // namespace c10d

namespace muster {

/// How a process group is made.
struct GroupOptions {
  std::string backend = {};               ///< as in choose_backend
  Backends backends = default_backends(); ///< what there is to choose from
  std::string name = "main";              ///< groups of one world that live at once differ in name
};

/// The ranks of a world, and what they do together.
///
/// Every rank calls the same functions in the same order, from one thread at a time. Before data
/// moves, the ranks compare what they are about to do: if they disagree on the operation, dtype or
/// shape, all of them throw the same RendezvousError. A rank that does not come makes the others
/// throw after World::timeout.
class ProcessGroup {
public:
  /// Meets the other ranks; blocks until all are there. Tensors on `device` and on the CPU can be
  /// used. Throws UsageError, Timeout that names the missing ranks, or RendezvousError.
  explicit ProcessGroup(const World& world,
                        at::Device device = at::kCPU,
                        GroupOptions options = {});
  ProcessGroup(const ProcessGroup&) = delete;
  ProcessGroup& operator=(const ProcessGroup&) = delete;
  /// Lets go without waiting for others, as after an error. See close().
  ~ProcessGroup();

  int rank() const noexcept;
  int size() const noexcept;
  at::Device device() const noexcept;
  const std::string& backend() const noexcept;

  /// Ends the group when all ranks have come here, so that none sees another's connections break.
  /// Waits at most World::timeout, and does not throw when that runs out.
  void close();
  /// The same in a process that ends right afterwards: Gloo's threads are left to that end, where
  /// close() would wait for each of them.
  void leave();

  /// The c10d object, for whatever is missing here. Valid until close().
  const c10::intrusive_ptr<c10d::ProcessGroup>& native() const noexcept;

  /// Reduces in place. The mean of integers is a UsageError, as are operations without a meaning
  /// for the dtype. float16 and bfloat16 on the CPU are summed in float32.
  void all_reduce(const at::Tensor& tensor, ReduceOp op = ReduceOp::sum);

  /// Reduces a number by value, in rank order and exactly: integers that overflow are an Error.
  template <class T>
  requires std::is_arithmetic_v<T> T all_reduce(T value, ReduceOp op = ReduceOp::sum) {
    detail::check_reducible<T>(op);
    if constexpr (std::same_as<T, bool>) {
      return all_reduce(static_cast<int>(value), op) != 0;
    } else {
      const Intent intent{"all_reduce", typeid(T).name(), to_string(op)};
      std::vector<T> values;
      for (const std::string& bytes : exchange(intent, pack(value)))
        values.push_back(unpack<T>(bytes));
      return detail::reduce(std::span<const T>(values), op);
    }
  }

  /// Overwrites every rank's tensor with that of `root`.
  void broadcast(const at::Tensor& tensor, int root = 0);

  /// Returns the value of `root`; any type that travels.
  template <class T>
  requires(Travels<T> && !std::same_as<T, at::Tensor>) T broadcast(const T& value, int root = 0) {
    const Intent intent{"broadcast", typeid(T).name(), {}};
    return unpack<T>(broadcast_bytes(intent, rank() == root ? pack(value) : std::string(), root));
  }

  /// The tensors of all ranks, in rank order along a new first dimension.
  at::Tensor all_gather(const at::Tensor& tensor);

  /// The values of all ranks, in rank order; any type that travels.
  template <class T>
  requires(Travels<T> && !std::same_as<T, at::Tensor>) std::vector<T> all_gather(const T& value) {
    std::vector<T> values;
    for (const std::string& bytes : exchange({"all_gather", typeid(T).name(), {}}, pack(value)))
      values.push_back(unpack<T>(bytes));
    return values;
  }

  /// Blocks until all ranks have come here.
  void barrier();

  /// Runs `function()` on rank 0, then on the others, and returns what it returned here: to
  /// download or prepare something once. If it throws in one rank, that rank rethrows and all
  /// others throw RendezvousError with its text.
  template <class F>
  auto rank_zero_first(F&& function) {
    using R = std::invoke_result_t<F&>;
    std::optional<std::conditional_t<std::is_void_v<R>, std::monostate, R>> result;
    std::exception_ptr failure;
    const auto attempt = [&] {
      try {
        if constexpr (std::is_void_v<R>)
          std::invoke(function);
        else
          result.emplace(std::invoke(function));
      } catch (...) {
        failure = std::current_exception();
      }
    };
    if (rank() == 0)
      attempt();
    share_failure("rank_zero_first", failure);
    if (rank() != 0)
      attempt();
    share_failure("rank_zero_first", failure);
    if constexpr (!std::is_void_v<R>)
      return std::move(*result);
  }

  /// Overwrites every rank's tensors with those of `root`, many at a time. They must be the same in
  /// number, dtype and shape on all ranks, which is not checked.
  void broadcast_unchecked(const std::vector<at::Tensor>& tensors, int root = 0);

private:
  /// What this rank is about to do, compared over ranks.
  struct Intent {
    const char* operation;
    std::string what;   // a type as typeid names it, or dtype and shape
    std::string detail; // e.g. the ReduceOp
  };

  /// Compares what ranks are about to do. Throws RendezvousError, the same on all ranks.
  void agree(const Intent& intent);
  /// The same, and returns every rank's bytes.
  std::vector<std::string> exchange(const Intent& intent, const std::string& bytes);
  std::string broadcast_bytes(const Intent& intent, const std::string& bytes, int root);
  /// Rethrows this rank's failure; throws RendezvousError if another rank has one.
  void share_failure(const char* operation, const std::exception_ptr& mine);

  struct State;
  std::unique_ptr<State> state_;
};

} // namespace muster
