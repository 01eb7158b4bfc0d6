// 256 MiB from a rank to the launcher, in GB/s from the function's last act to the value in hand.
#include <muster/muster.hpp>

#include <cstring>
#include <string>
#include <vector>

#include <torch/torch.h>

#include "serve.hpp"

namespace {

constexpr std::size_t size_bytes = std::size_t(256) << 20;

/// Puts the time of the function's end in front.
void stamp(void* bytes) {
  const long now = bench::now_ns();
  std::memcpy(bytes, &now, sizeof now);
}

std::vector<char> make_vector(muster::World& /*world*/) {
  std::vector<char> bytes(size_bytes, 'x');
  stamp(bytes.data());
  return bytes;
}

torch::Tensor make_tensor(muster::World& /*world*/) {
  torch::Tensor tensor = torch::ones({static_cast<std::int64_t>(size_bytes / sizeof(float))});
  stamp(tensor.mutable_data_ptr());
  return tensor;
}

/// Looks at every page, so that nothing is put off.
double rate(const char* bytes) {
  long began = 0;
  std::memcpy(&began, bytes, sizeof began);
  long sum = 0;
  for (std::size_t at = 0; at < size_bytes; at += 4096)
    sum += bytes[at];
  const long ended = bench::now_ns() + (sum == 0 ? 1 : 0);
  return static_cast<double>(size_bytes) / static_cast<double>(ended - began);
}

} // namespace

int main(int argc, char** argv) {
  muster::init(argc, argv);
  const bool as_tensor = argc > 1 && std::string(argv[1]) == "tensor";
  return muster::guard([&] {
    muster::SpawnLauncher launcher(muster::StartMethod::forkserver, 1);
    return bench::serve([&] {
      if (as_tensor)
        return rate(static_cast<const char*>(launcher.run(make_tensor).at(0).const_data_ptr()));
      return rate(launcher.run(make_vector).at(0).data());
    });
  });
}
