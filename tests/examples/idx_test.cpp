#include <cstdlib>
#include <fstream>

#include "../../examples/idx.hpp"
#include "catch.hpp"

using Catch::Contains;

namespace {

const std::string whole{"\0\0\x08\x02\0\0\0\x02\0\0\0\x03"
                        "abcdef",
                        18};

/// A file that is gone at the end of the test.
class TestFile {
public:
  TestFile(const std::string& bytes, bool compressed) : name_(path_ + (compressed ? ".gz" : "")) {
    if (compressed) {
      const gzFile file = ::gzopen(name_.c_str(), "wb");
      ::gzwrite(file, bytes.data(), static_cast<unsigned>(bytes.size()));
      ::gzclose(file);
    } else {
      std::ofstream(name_, std::ios::binary) << bytes;
    }
  }
  TestFile(const TestFile&) = delete;
  TestFile& operator=(const TestFile&) = delete;
  ~TestFile() { ::unlink(name_.c_str()); }

  const std::string& path() const { return path_; }
  const std::string& name() const { return name_; }

private:
  std::string path_ = "idx_test." + std::to_string(::getpid());
  std::string name_;
};

} // namespace

TEST_CASE("an idx file is read, compressed or not", "[idx]") {
  const bool compressed = GENERATE(false, true);
  const TestFile file(whole, compressed);
  const Idx idx = read_idx(file.path(), 2);
  CHECK(idx.sizes == std::vector<std::int64_t>{2, 3});
  CHECK(std::string(idx.bytes.begin(), idx.bytes.end()) == "abcdef");
}

TEST_CASE("a wrong size is told with the file's name and both sizes", "[idx]") {
  const bool compressed = GENERATE(false, true);
  const auto [bytes, expected, found] =
      GENERATE(table<std::string, int, int>({{whole.substr(0, 15), 18, 15},
                                             {whole.substr(0, 5), 12, 5},
                                             {"", 12, 0},
                                             {whole + "x", 18, 19}}));
  const TestFile file(bytes, compressed);
  CHECK_THROWS_WITH(read_idx(file.path(), 2),
                    file.name() + ": expected " + std::to_string(expected) +
                        " bytes (uncompressed), found " + std::to_string(found));
}

TEST_CASE("a compressed file that was cut off is told", "[idx]") {
  const TestFile file(whole, true);
  REQUIRE(::truncate(file.name().c_str(), 25) == 0);
  CHECK_THROWS_WITH(read_idx(file.path(), 2), Contains(file.name()) && Contains("expected"));
}

TEST_CASE("a missing file and a file of another kind are told", "[idx]") {
  CHECK_THROWS_WITH(read_idx("/no/such/file", 2), Contains("/no/such/file cannot be read"));
  const TestFile file(std::string(40, 'x'), false);
  CHECK_THROWS_WITH(read_idx(file.path(), 2), Contains("no idx file"));
}
