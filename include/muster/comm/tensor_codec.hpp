#pragma once

#include <muster/launch/codec.hpp>

#include <ATen/core/Tensor.h>

namespace muster {

/// Tensors travel as arguments, as results and inside of structs and containers: dtype, sizes,
/// requires_grad of leaves, and their bytes. They arrive contiguous, on the CPU, and without the
/// graph that computed them; an undefined tensor arrives undefined. Throws UsageError for sparse,
/// quantized and nested tensors.
void save(Writer& to, const at::Tensor& tensor);

/// The reverse. Large tensors stay mapped from the memory file that they came in, without a copy.
void load(Reader& from, at::Tensor& tensor);

} // namespace muster
