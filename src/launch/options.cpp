#include <muster/launch/error.hpp>
#include <muster/launch/options.hpp>

#include <cstdio>

#include <fmt/format.h>

namespace muster {

const char* to_string(StartMethod method) noexcept {
  switch (method) {
  case StartMethod::spawn:
    return "spawn";
  case StartMethod::fork:
    return "fork";
  case StartMethod::forkserver:
    return "forkserver";
  }
  return "unknown";
}

const char* to_string(Binding binding) noexcept {
  switch (binding) {
  case Binding::none:
    return "none";
  case Binding::node:
    return "node";
  case Binding::socket:
    return "socket";
  case Binding::core_complex:
    return "core-complex";
  case Binding::exclusive:
    return "exclusive";
  }
  return "unknown";
}

Binding binding_from(const std::string& name) {
  for (const Binding binding : {Binding::none,
                                Binding::node,
                                Binding::socket,
                                Binding::core_complex,
                                Binding::exclusive})
    if (name == to_string(binding))
      return binding;
  throw UsageError(fmt::format(
      "NUMA binding '{}': it must be one of none, node, socket, core-complex, exclusive", name));
}

StartMethod start_method_from(const std::string& name) {
  for (const StartMethod method : {StartMethod::spawn, StartMethod::fork, StartMethod::forkserver})
    if (name == to_string(method))
      return method;
  throw UsageError(
      fmt::format("start method '{}': it must be one of spawn, fork, forkserver", name));
}

void print_failure(const RankReport& first) {
  const std::string line = fmt::format("muster: {}; stopping the others\n", to_line(first));
  std::fwrite(line.data(), 1, line.size(), stderr);
}

} // namespace muster
