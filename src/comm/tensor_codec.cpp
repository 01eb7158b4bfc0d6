#include <muster/comm/tensor_codec.hpp>
#include <muster/launch/error.hpp>

#include <ATen/Functions.h>
#include <c10/core/ScalarType.h>
#include <fmt/format.h>

namespace muster {

namespace {

constexpr std::size_t alignment = 64;         // what ATen's own allocator gives
constexpr std::size_t mapped_bytes = 1 << 18; // smaller tensors are cheaper to copy than to map

/// Stands in front of a tensor's sizes and bytes.
struct Head {
  bool defined = false;
  bool requires_grad = false;
  std::int8_t dtype = 0;
  std::uint32_t dimensions = 0;
};

void check_travels(const at::Tensor& tensor) {
  if (tensor.layout() != at::kStrided || tensor.is_quantized() || tensor.is_nested())
    throw UsageError(
        fmt::format("a tensor of layout {} and dtype {} cannot travel to another process; "
                    "convert it to a dense one",
                    c10::str(tensor.layout()),
                    c10::toString(tensor.scalar_type())));
}

at::Tensor take_bytes(Reader& from, const std::vector<std::int64_t>& sizes, at::ScalarType dtype) {
  std::size_t size = c10::elementSize(dtype);
  for (const std::int64_t length : sizes)
    size *= static_cast<std::size_t>(length);
  if (size >= mapped_bytes && from.can_map()) {
    std::shared_ptr<void> bytes = from.map(size);
    return at::from_blob(
        bytes.get(), sizes, [bytes](void*) {}, at::TensorOptions(dtype));
  }
  at::Tensor tensor = at::empty(sizes, at::TensorOptions(dtype));
  from.read(tensor.mutable_data_ptr(), size);
  return tensor;
}

} // namespace

void save(Writer& to, const at::Tensor& tensor) {
  Head head;
  head.defined = tensor.defined();
  if (!head.defined) {
    to(head);
    return;
  }
  check_travels(tensor);
  head.requires_grad = tensor.is_leaf() && tensor.requires_grad();
  head.dtype = static_cast<std::int8_t>(tensor.scalar_type());
  head.dimensions = static_cast<std::uint32_t>(tensor.dim());
  to(head);
  to.write(tensor.sizes().data(), sizeof(std::int64_t) * head.dimensions);
  const at::Tensor plain = tensor.detach().resolve_conj().resolve_neg().to(at::kCPU).contiguous();
  to.align(alignment);
  to.write(plain.const_data_ptr(), plain.nbytes());
}

void load(Reader& from, at::Tensor& tensor) {
  Head head;
  from(head);
  if (!head.defined) {
    tensor = at::Tensor();
    return;
  }
  if (head.dtype < 0 || head.dtype >= static_cast<std::int8_t>(at::ScalarType::NumOptions))
    throw Error("encoded bytes hold no tensor: the reader's type is not the writer's");
  std::vector<std::int64_t> sizes(head.dimensions);
  from.read(sizes.data(), sizeof(std::int64_t) * sizes.size());
  from.align(alignment);
  tensor = take_bytes(from, sizes, static_cast<at::ScalarType>(head.dtype));
  if (head.requires_grad)
    tensor.set_requires_grad(true);
}

} // namespace muster
