#pragma once

#include <muster/comm/world.hpp>
#include <muster/launch/codec.hpp>
#include <muster/launch/task.hpp>

#include <concepts>
#include <exception>
#include <functional>
#include <string>
#include <tuple>
#include <type_traits>

namespace muster {

/// Finds the module that `address` lies in. Throws UsageError if there is none, or if it was
/// linked without a build id.
Symbol symbol_of(const void* address);

/// The reverse. Throws UsageError if this process has not loaded that very module.
void* address_of(const Symbol& symbol);

namespace detail {

/// One call of a user's function in a rank: where it comes from and where its result goes.
struct Call {
  void* function;
  World& world;
  Reader& arguments;
  Writer& result;
  /// What to add to the report of an exception that leaves the function.
  std::function<std::string(const std::exception&)> explain = {};
};

/// Decodes the arguments, calls the function, encodes the result.
using Thunk = void (*)(Call&);

template <class F>
concept FunctionPointer = std::is_pointer_v<F> && std::is_function_v<std::remove_pointer_t<F>>;

/// A function pointer, made from a function or from a lambda without captures.
template <class F>
constexpr auto as_function(F function) {
  if constexpr (FunctionPointer<F>) {
    return function;
  } else if constexpr (requires { +function; }) {
    return +function;
  } else {
    static_assert(FunctionPointer<F>,
                  "muster: a function that runs in other processes cannot capture anything; pass "
                  "what it needs as an argument");
    return nullptr;
  }
}

template <class P>
using Value = std::remove_cv_t<std::remove_reference_t<P>>;

template <class P>
consteval void check_parameter() {
  static_assert(!std::is_lvalue_reference_v<P> || std::is_const_v<std::remove_reference_t<P>>,
                "muster: a parameter that is a non-const reference would be changed in another "
                "process only; take it by value and return the result");
  static_assert(Travels<Value<P>>,
                "muster: this parameter type cannot travel to another process; give it a "
                "serialize() member function, make it a plain struct, or pass something simpler");
  static_assert(std::default_initializable<Value<P>>,
                "muster: a parameter type needs a default constructor to travel");
}

template <class R>
consteval void check_result() {
  static_assert(std::is_void_v<R> || Travels<Value<R>>,
                "muster: this result type cannot travel back from another process; give it a "
                "serialize() member function, make it a plain struct, or return something simpler");
}

/// Encodes `arguments` as the types of the parameters P.
template <class... P, class... A>
void encode_arguments(Writer& to, const A&... arguments) {
  static_assert(sizeof...(P) == sizeof...(A),
                "muster: the number of arguments is not what the function takes");
  if constexpr (sizeof...(P) == sizeof...(A)) {
    (check_parameter<P>(), ...);
    const auto put = [&to]<class Q, class B>(std::type_identity<Q> /*unused*/, const B& argument) {
      static_assert(std::is_convertible_v<const B&, Q>,
                    "muster: an argument does not convert to the parameter's type");
      if constexpr (std::is_same_v<B, Q>)
        to(argument);
      else
        to(static_cast<Q>(argument));
    };
    (put(std::type_identity<Value<P>>{}, arguments), ...);
  }
}

/// Decodes what encode_arguments<P...> wrote, calls `function(first, arguments...)` and encodes its
/// result.
template <class R, class... P, class Function, class First>
void decode_and_call(Call& call, Function function, First& first) {
  std::tuple<Value<P>...> arguments;
  std::apply([&](auto&... each) { (call.arguments(each), ...); }, arguments);
  call.arguments.finish();
  const auto run = [&]() -> R {
    return std::apply([&](auto&... each) -> R { return function(first, std::forward<P>(each)...); },
                      arguments);
  };
  if constexpr (std::is_void_v<R>)
    run();
  else
    call.result(static_cast<const Value<R>&>(run()));
}

template <class R, class... P>
void call_with_world(Call& call) {
  decode_and_call<R, P...>(call, reinterpret_cast<R (*)(World&, P...)>(call.function), call.world);
}

/// Work for `function(World&, arguments...)`.
template <class R, class... P, class... A>
Work work_with_world(R (*function)(World&, P...), const A&... arguments) {
  check_result<R>();
  Work work;
  work.thunk = symbol_of(reinterpret_cast<const void*>(&call_with_world<R, P...>));
  work.function = symbol_of(reinterpret_cast<const void*>(function));
  work.arguments = Blob::create("muster-arguments");
  Writer writer(work.arguments);
  encode_arguments<P...>(writer, arguments...);
  writer.finish();
  work.arguments.seal();
  return work;
}

} // namespace detail

} // namespace muster
