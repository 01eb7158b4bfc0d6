#pragma once

#include <muster/launch/codec.hpp>
#include <muster/launch/entry.hpp>
#include <muster/launch/launcher.hpp>

#include <memory>
#include <string>
#include <tuple>
#include <typeinfo>
#include <utility>

namespace muster {

class Strategy;

/// How to make a strategy in a rank, which never saw the parent's object. See recipe_of.
struct Recipe {
  Symbol make;                          ///< a detail::MakeStrategy
  std::string options;                  ///< encoded, for `make`
  const std::type_info* type = nullptr; ///< what `make` makes; not sent
};

namespace detail {

/// The launcher of a strategy inside of a rank: it starts nothing.
class RankLauncher : public Launcher {
public:
  RankLauncher() : Launcher(StartMethod::spawn, 1) {}
  JobReport spawn(Task task) override;
};

using MakeStrategy = std::unique_ptr<Strategy> (*)(Reader& options);

template <class S, class... Options>
std::unique_ptr<Strategy> make_strategy(Reader& from) {
  std::tuple<Options...> options;
  std::apply([&](auto&... each) { (from(each), ...); }, options);
  from.finish();
  return std::apply(
      [](auto&... each) { return std::make_unique<S>(RankLauncher(), std::move(each)...); },
      options);
}

} // namespace detail

/// The recipe for an S that is constructed as `S(launcher, options...)`; the options travel.
template <class S, class... Options>
Recipe recipe_of(const Options&... options) {
  static_assert(
      (Travels<Options> && ...),
      "muster: a strategy's options travel to other processes; give what cannot travel to "
      "the strategy in the rank");
  const detail::MakeStrategy make = &detail::make_strategy<S, Options...>;
  return {symbol_of(reinterpret_cast<const void*>(make)), pack(options...), &typeid(S)};
}

} // namespace muster
