#include "guards.hpp"

#include <muster/launch/error.hpp>

#include <dlfcn.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "program.hpp"

namespace muster::process {

void require_one_thread() {
  const auto names = thread_names();
  if (names.size() > 1)
    throw UsageError(
        fmt::format("start method fork: this process has {} threads ({}), for instance of a used "
                    "OpenMP pool or "
                    "of autograd, and forked ranks would hang; use StartMethod::forkserver or "
                    "StartMethod::spawn, or launch before anything starts threads",
                    names.size(),
                    fmt::join(names, ", ")));
}

void require_no_cuda() {
  void* driver = ::dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
  if (driver == nullptr)
    return;
  using GetCount = int (*)(int*);
  const auto get_count = reinterpret_cast<GetCount>(::dlsym(driver, "cuDeviceGetCount"));
  int devices = 0;
  constexpr int not_initialized = 3; // CUDA_ERROR_NOT_INITIALIZED
  const bool used = get_count != nullptr && get_count(&devices) != not_initialized;
  ::dlclose(driver);
  if (used)
    throw UsageError("start method fork: this process has used CUDA, which forked ranks could not "
                     "use; use StartMethod::forkserver or StartMethod::spawn");
}

} // namespace muster::process
