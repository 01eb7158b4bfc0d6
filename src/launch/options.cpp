#include <muster/cluster/environment.hpp>
#include <muster/launch/error.hpp>
#include <muster/launch/options.hpp>

#include <charconv>
#include <cstdio>

#include <fmt/format.h>

#include "../process/gpus.hpp"
#include "cpus.hpp"

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
  for (const Binding binding :
       {Binding::none, Binding::node, Binding::socket, Binding::core_complex, Binding::exclusive})
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

int nprocs_from(const std::string& text) {
  if (text == "cpu")
    return usable_cpus();
  if (text == "gpu" || text == "auto") {
    const int gpus = process::visible_gpus(EnvSnapshot::current());
    if (gpus == 0 && text == "gpu")
      throw UsageError("as many ranks as GPUs: no GPU is visible here (/proc/driver/nvidia/gpus, "
                       "CUDA_VISIBLE_DEVICES); write a number, cpu or auto");
    return gpus > 0 ? gpus : usable_cpus();
  }
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < 1)
    throw UsageError(fmt::format("'{}' ranks: write a number from 1, cpu, gpu or auto", text));
  return number;
}

void print_failure(const RankReport& first) {
  const std::string line = fmt::format("muster: {}; stopping the others\n", to_line(first));
  std::fwrite(line.data(), 1, line.size(), stderr);
}

} // namespace muster
