#include <muster/comm/tensor_codec.hpp>
#include <muster/launch/error.hpp>

#include <optional>

#include <torch/torch.h>

#include "catch.hpp"

namespace {

struct Checkpoint {
  int step = 0;
  at::Tensor weights;
  std::vector<at::Tensor> moments;
  std::optional<at::Tensor> none;
};

template <class T>
T there_and_back(const T& value) {
  const T by_memory = muster::unpack<T>(muster::pack(value));
  static_cast<void>(by_memory);
  return muster::decode<T>(muster::encode("test", value));
}

void check_same(const at::Tensor& tensor) {
  const at::Tensor back = there_and_back(tensor);
  CHECK(back.scalar_type() == tensor.scalar_type());
  CHECK(back.sizes() == tensor.sizes());
  CHECK(back.is_contiguous());
  CHECK(torch::equal(back, tensor.detach().resolve_conj()));
  CHECK(torch::equal(muster::unpack<at::Tensor>(muster::pack(tensor)), back));
}

} // namespace

TEST_CASE("tensors of every dtype and shape travel", "[tensor_codec]") {
  for (const auto dtype : {torch::kFloat,
                           torch::kDouble,
                           torch::kHalf,
                           torch::kBFloat16,
                           torch::kLong,
                           torch::kInt,
                           torch::kShort,
                           torch::kByte,
                           torch::kChar,
                           torch::kBool,
                           torch::kComplexDouble})
    check_same(torch::randn({3, 5}).mul(5).to(dtype));
  check_same(torch::tensor(4.0));
  check_same(torch::empty({0}));
  check_same(torch::empty({3, 0, 2}));
  check_same(torch::randn({40, 30}).t());
  check_same(torch::randn({8, 3, 4, 4}).contiguous(at::MemoryFormat::ChannelsLast));
  check_same(torch::randn({100})[7]);
  check_same(torch::randn({4}, torch::kComplexFloat).conj());
}

TEST_CASE("leaves keep requires_grad, results lose their graph", "[tensor_codec]") {
  const at::Tensor leaf = torch::ones({2}).requires_grad_(true);
  CHECK(there_and_back(leaf).requires_grad());
  CHECK_FALSE(there_and_back(leaf * 2).requires_grad());
  CHECK_FALSE(there_and_back(at::Tensor()).defined());
}

TEST_CASE("large tensors are mapped, writable, and outlive the blob", "[tensor_codec]") {
  const at::Tensor large = torch::randn({1 << 18});
  at::Tensor back;
  {
    const muster::Blob blob = muster::encode("test", 1, large, large);
    muster::Reader reader(blob);
    int one = 0;
    at::Tensor first;
    reader(one, first, back);
    reader.finish();
    first.zero_();
    CHECK(muster::Reader::complete(blob));
  }
  CHECK(torch::equal(back, large));
  CHECK(reinterpret_cast<std::uintptr_t>(back.data_ptr()) % 64 == 0);
  back.add_(1);
  CHECK(torch::equal(back, large + 1));
}

TEST_CASE("tensors travel inside of structs and containers", "[tensor_codec]") {
  static_assert(muster::Travels<Checkpoint>);
  const Checkpoint back =
      there_and_back(Checkpoint{7, torch::ones({2}), {torch::zeros({300, 300}), at::Tensor()}, {}});
  CHECK(back.step == 7);
  CHECK(torch::equal(back.weights, torch::ones({2})));
  CHECK(back.moments.size() == 2);
  CHECK(back.moments[0].numel() == 90'000);
  CHECK_FALSE(back.none.has_value());
  const auto pairs = there_and_back(std::map<std::string, at::Tensor>{{"a", torch::ones({1})}});
  CHECK(pairs.at("a").item<float>() == 1);
}

TEST_CASE("sparse tensors are refused before anything is sent", "[tensor_codec]") {
  CHECK_THROWS_AS(muster::pack(torch::eye(3).to_sparse()), muster::UsageError);
}
