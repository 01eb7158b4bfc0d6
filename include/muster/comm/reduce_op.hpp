#pragma once

#include <muster/launch/error.hpp>

#include <algorithm>
#include <concepts>
#include <span>
#include <type_traits>

namespace muster {

/// How values of several ranks become one.
enum class ReduceOp { sum, mean, min, max, product };

/// "sum", "mean", "min", "max" or "product".
const char* to_string(ReduceOp op) noexcept;

namespace detail {

/// Throws UsageError if `op` has no exact meaning for T: the mean of integers, sums of bool.
template <class T>
void check_reducible(ReduceOp op) {
  if constexpr (std::same_as<T, bool>) {
    if (op != ReduceOp::min && op != ReduceOp::max)
      throw UsageError(std::string("all_reduce cannot take the ") + to_string(op) +
                       " of bool; use min (all), max (any), or a sum of int");
  } else if constexpr (std::integral<T>) {
    if (op == ReduceOp::mean)
      throw UsageError("all_reduce cannot take the mean of integers, which would be cut off; "
                       "convert them to double, or take the sum");
  }
}

template <class T>
T add(T a, T b) {
  if constexpr (std::integral<T>) {
    T result{};
    if (__builtin_add_overflow(a, b, &result))
      throw Error("all_reduce: the sum does not fit its integer type");
    return result;
  } else {
    return a + b;
  }
}

template <class T>
T multiply(T a, T b) {
  if constexpr (std::integral<T>) {
    T result{};
    if (__builtin_mul_overflow(a, b, &result))
      throw Error("all_reduce: the product does not fit its integer type");
    return result;
  } else {
    return a * b;
  }
}

/// Reduces in the order of `values`, so that every rank gets the same bits. `values` is not empty.
template <class T>
T reduce(std::span<const T> values, ReduceOp op) {
  check_reducible<T>(op);
  if (op == ReduceOp::min)
    return *std::min_element(values.begin(), values.end());
  if (op == ReduceOp::max)
    return *std::max_element(values.begin(), values.end());
  if constexpr (!std::same_as<T, bool>) {
    T result = values.front();
    for (const T value : values.subspan(1))
      result = op == ReduceOp::product ? multiply(result, value) : add(result, value);
    if constexpr (std::floating_point<T>)
      return op == ReduceOp::mean ? result / static_cast<T>(values.size()) : result;
    return result;
  }
  return values.front();
}

} // namespace detail

} // namespace muster
