#pragma once

#include <cstddef>
#include <type_traits>
#include <utility>

namespace muster::detail {

/// Converts to anything; only used to count the members of an aggregate.
struct AnyMember {
  template <class T>
  operator T() const noexcept; // NOLINT: implicit on purpose, never defined
};

template <class T, std::size_t... I>
constexpr bool takes_members(std::index_sequence<I...> /*unused*/) {
  return requires { T{(static_cast<void>(I), AnyMember{})...}; };
}

inline constexpr std::size_t max_members = 16;

/// The number of members of an aggregate, found by the longest braced list that initializes it.
template <class T, std::size_t N = max_members + 1>
constexpr std::size_t member_count() {
  if constexpr (N == 0 || takes_members<T>(std::make_index_sequence<N>{}))
    return N;
  else
    return member_count<T, N - 1>();
}

/// A struct without constructors and bases, of at most 16 members, none of them a C array.
template <class T>
concept PlainAggregate = std::is_class_v<T> && std::is_aggregate_v<T> && !std::is_empty_v<T>;

/// Calls `visit(members...)` with the members of `value`.
template <PlainAggregate T, class Visit>
constexpr decltype(auto) visit_members(T& value, Visit&& visit) {
  constexpr std::size_t count = member_count<std::remove_const_t<T>>();
  static_assert(count <= max_members,
                "muster: a plain struct travels with at most 16 members; give it a serialize() "
                "member function, or group its members in structs");
  if constexpr (count > max_members)
    return;
  else if constexpr (count == 1) {
    auto& [f1] = value;
    return visit(f1);
  } else if constexpr (count == 2) {
    auto& [f1, f2] = value;
    return visit(f1, f2);
  } else if constexpr (count == 3) {
    auto& [f1, f2, f3] = value;
    return visit(f1, f2, f3);
  } else if constexpr (count == 4) {
    auto& [f1, f2, f3, f4] = value;
    return visit(f1, f2, f3, f4);
  } else if constexpr (count == 5) {
    auto& [f1, f2, f3, f4, f5] = value;
    return visit(f1, f2, f3, f4, f5);
  } else if constexpr (count == 6) {
    auto& [f1, f2, f3, f4, f5, f6] = value;
    return visit(f1, f2, f3, f4, f5, f6);
  } else if constexpr (count == 7) {
    auto& [f1, f2, f3, f4, f5, f6, f7] = value;
    return visit(f1, f2, f3, f4, f5, f6, f7);
  } else if constexpr (count == 8) {
    auto& [f1, f2, f3, f4, f5, f6, f7, f8] = value;
    return visit(f1, f2, f3, f4, f5, f6, f7, f8);
  } else if constexpr (count == 9) {
    auto& [f1, f2, f3, f4, f5, f6, f7, f8, f9] = value;
    return visit(f1, f2, f3, f4, f5, f6, f7, f8, f9);
  } else if constexpr (count == 10) {
    auto& [f1, f2, f3, f4, f5, f6, f7, f8, f9, f10] = value;
    return visit(f1, f2, f3, f4, f5, f6, f7, f8, f9, f10);
  } else if constexpr (count == 11) {
    auto& [f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11] = value;
    return visit(f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11);
  } else if constexpr (count == 12) {
    auto& [f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12] = value;
    return visit(f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12);
  } else if constexpr (count == 13) {
    auto& [f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13] = value;
    return visit(f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13);
  } else if constexpr (count == 14) {
    auto& [f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14] = value;
    return visit(f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14);
  } else if constexpr (count == 15) {
    auto& [f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15] = value;
    return visit(f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15);
  } else if constexpr (count == 16) {
    auto& [f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15, f16] = value;
    return visit(f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15, f16);
  }
}

} // namespace muster::detail
