#include "comm/backends.hpp"

#ifdef USE_C10D_NCCL
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>
#endif

namespace muster::comm {

#ifdef USE_C10D_NCCL

namespace {

c10::intrusive_ptr<c10d::Backend> make_nccl(const BackendRequest& request) {
  auto options = c10d::ProcessGroupNCCL::Options::create();
  options->timeout = request.world.timeout;
  auto backend = c10::make_intrusive<c10d::ProcessGroupNCCL>(
      request.store, request.world.rank, request.world.size, std::move(options));
  // Otherwise NCCL's barrier guesses the device, and hangs where the guess is wrong.
  backend->setBoundDeviceId(request.device);
  return backend;
}

} // namespace

void add_nccl(Backends& backends) { backends["nccl"] = make_nccl; }

#else

void add_nccl(Backends& /*backends*/) {}

#endif

} // namespace muster::comm
