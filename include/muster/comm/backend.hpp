#pragma once

#include <muster/comm/world.hpp>

#include <functional>
#include <map>
#include <string>

#include <ATen/core/Tensor.h>

namespace c10d {
class Backend;
class Store;
} // namespace c10d

namespace muster {

/// What a backend is made for.
struct BackendRequest {
  const World& world;
  at::Device device;
  /// Where the ranks of this group meet; no other group uses these keys.
  c10::intrusive_ptr<c10d::Store> store;
};

/// Makes this rank's part of a backend. It may block until the other ranks do the same.
using BackendFactory = std::function<c10::intrusive_ptr<c10d::Backend>(const BackendRequest&)>;

/// Backends by name, in lower case. A plain value: add your own to a copy of default_backends().
using Backends = std::map<std::string, BackendFactory>;

/// "gloo", and "nccl" where muster was built with it.
Backends default_backends();

/// The name of the backend to use: `wanted`, else the variable MUSTER_BACKEND, else "nccl" for CUDA
/// devices and "gloo" for others. Throws UsageError that lists what `available` has when it is not
/// there; a CUDA device never falls back to Gloo.
std::string choose_backend(const std::string& wanted, at::Device device, const Backends& available);

} // namespace muster
