#include <muster/comm/backend.hpp>
#include <muster/launch/error.hpp>

#include <cstdlib>

#include <fmt/format.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "comm/backends.hpp"

namespace muster {

namespace {

std::string list_of(const Backends& backends) {
  std::string names;
  for (const auto& [name, factory] : backends)
    names += (names.empty() ? "" : ", ") + name;
  return names.empty() ? "none" : names;
}

} // namespace

Backends default_backends() {
  Backends backends{{"gloo", comm::make_gloo}};
  comm::add_nccl(backends);
  return backends;
}

std::string
choose_backend(const std::string& wanted, at::Device device, const Backends& available) {
  const char* variable = std::getenv("MUSTER_BACKEND");
  const bool from_variable = wanted.empty() && variable && *variable;
  const std::string chosen =
      from_variable ? variable : (!wanted.empty() ? wanted : (device.is_cuda() ? "nccl" : "gloo"));
  if (available.contains(chosen))
    return chosen;
  if (wanted.empty() && !from_variable)
    throw UsageError(
        fmt::format("device {} needs the backend {}, which this build of muster lacks; "
                    "available: {}. Name one to use it all the same",
                    device.str(),
                    chosen,
                    list_of(available)));
  throw UsageError(fmt::format("there is no backend '{}'{}; available: {}",
                               chosen,
                               from_variable ? " (MUSTER_BACKEND)" : "",
                               list_of(available)));
}

} // namespace muster
