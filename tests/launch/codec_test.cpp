#include <muster/launch/codec.hpp>
#include <muster/launch/error.hpp>

#include <limits>

#include <unistd.h>

#include "catch.hpp"

namespace {

struct Point {
  double x = 0;
  std::optional<int> label = {};
  friend bool operator==(const Point&, const Point&) = default;
};

struct Shape {
  std::string name = {};
  std::vector<Point> points = {};
  std::map<std::string, std::array<int, 2>> ranges = {};
  friend bool operator==(const Shape&, const Shape&) = default;
};

enum class Color : std::uint8_t { red, green };

class Account {
public:
  Account() = default;
  explicit Account(int balance) : balance_(balance) {}
  template <class Archive>
  void serialize(Archive& archive) {
    archive(balance_);
  }
  int balance() const { return balance_; }

private:
  int balance_ = 0;
};

struct Sixteen {
  int a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p;
};

template <class T>
T through_file(const T& value) {
  return muster::decode<T>(muster::encode("test", value));
}

template <class T>
T through_memory(const T& value) {
  return muster::unpack<T>(muster::pack(value));
}

} // namespace

TEST_CASE("values of many types come back equal", "[codec]") {
  const Shape shape{"square", {{1.5, 2}, {-0.0, std::nullopt}}, {{"x", {1, 2}}, {"", {3, 4}}}};
  CHECK(through_file(shape) == shape);
  CHECK(through_memory(shape) == shape);
  CHECK(through_file(std::string("a\0b", 3)) == std::string("a\0b", 3));
  CHECK(through_file(Color::green) == Color::green);
  CHECK(through_file(std::vector<bool>{true, false, true}) == std::vector<bool>{true, false, true});
  CHECK(through_file(std::variant<int, std::string>("v")) == std::variant<int, std::string>("v"));
  CHECK(through_file(std::chrono::nanoseconds(7)) == std::chrono::nanoseconds(7));
  CHECK(through_file(std::numeric_limits<double>::infinity()) ==
        std::numeric_limits<double>::infinity());
  CHECK(through_file(Account(42)).balance() == 42);
  CHECK(through_file(Sixteen{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}).p == 16);
}

TEST_CASE("what does not travel is known before it is tried", "[codec]") {
  STATIC_REQUIRE(muster::Travels<Shape>);
  STATIC_REQUIRE(muster::Travels<Account>);
  STATIC_REQUIRE_FALSE(muster::Travels<int*>);
  STATIC_REQUIRE_FALSE(muster::Travels<int&>);
  STATIC_REQUIRE_FALSE(muster::Travels<std::unique_ptr<int>>);
}

TEST_CASE("sizes around the buffers' come back exact", "[codec]") {
  const std::size_t edge = GENERATE(0U, 1U, 63U, 64U * 1024, 256U * 1024, 3U * 256 * 1024);
  for (const std::size_t size : {edge - (edge > 0 ? 1 : 0), edge, edge + 1}) {
    std::vector<unsigned char> bytes(size);
    for (std::size_t i = 0; i < size; ++i)
      bytes[i] = static_cast<unsigned char>(i * 31 + i / 251);
    const auto value = std::make_tuple(std::string("before"), bytes, 7, bytes);
    CHECK(through_file(value) == value);
  }
}

TEST_CASE("mapped bytes are private, aligned and part of the checksum", "[codec]") {
  const std::string payload(100'000, 'p');
  const muster::Blob blob = muster::Blob::create("test");
  muster::Writer writer(blob);
  writer(1, std::string("head"));
  writer.align(64);
  writer.write(payload.data(), payload.size());
  writer(2);
  writer.finish();
  for (int round = 0; round < 2; ++round) { // what the first reader writes, the second never sees
    muster::Reader reader(blob);
    int before = 0;
    int after = 0;
    std::string head;
    reader(before, head);
    reader.align(64);
    const auto mapped = reader.map(payload.size());
    reader(after);
    reader.finish();
    CHECK(reinterpret_cast<std::uintptr_t>(mapped.get()) % 64 == 0);
    CHECK(std::string(static_cast<char*>(mapped.get()), payload.size()) == payload);
    static_cast<char*>(mapped.get())[0] = 'X';
    CHECK(before == 1);
    CHECK(after == 2);
  }
}

TEST_CASE("a blob that was not finished is never taken for whole", "[codec]") {
  const muster::Blob whole = muster::encode("test", std::string(1000, 'x'));
  CHECK(muster::Reader::complete(whole));
  const auto size = static_cast<off_t>(whole.size_bytes());
  for (const off_t cut : {off_t{0}, off_t{10}, size / 2, size - 1}) {
    const muster::Blob part = muster::encode("test", std::string(1000, 'x'));
    REQUIRE(::ftruncate(part.fd(), cut) == 0);
    CHECK_FALSE(muster::Reader::complete(part));
    CHECK_THROWS_WITH(muster::decode<std::string>(part), Catch::Contains("end early"));
  }
}

TEST_CASE("a changed byte is found by the checksum", "[codec]") {
  const muster::Blob blob = muster::encode("test", std::string(100'000, 'x'));
  REQUIRE(::pwrite(blob.fd(), "y", 1, 50'000) == 1);
  CHECK_THROWS_WITH(muster::decode<std::string>(blob), Catch::Contains("checksum"));
}

TEST_CASE("a reader of another type is told so", "[codec]") {
  CHECK_THROWS_WITH(muster::decode<double>(muster::encode("test", 1)), Catch::Contains("type"));
  CHECK_THROWS_WITH(muster::decode<char>(muster::encode("test", 1)), Catch::Contains("left over"));
  CHECK_THROWS_WITH(muster::unpack<double>(muster::pack(1)), Catch::Contains("type"));
}

TEST_CASE("a sealed blob cannot be changed", "[codec]") {
  const muster::Blob blob = muster::encode("test", 1);
  blob.seal();
  CHECK(::pwrite(blob.fd(), "y", 1, 0) == -1);
  CHECK(muster::decode<int>(blob) == 1);
}
