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
