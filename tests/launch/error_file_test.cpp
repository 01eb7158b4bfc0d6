#include <muster/launch/error.hpp>

#include <sys/stat.h>
#include <unistd.h>

#include "catch.hpp"
#include "folder.hpp"
#include "launch/error_file.hpp"

using muster::process::ErrorFiles;
using muster::process::parse_error_file;

namespace {

constexpr std::size_t most = 64 * 1024;

std::string repeated(const std::string& text, std::size_t times) {
  std::string all;
  for (std::size_t i = 0; i < times; ++i)
    all += text;
  return all;
}

/// What one rank's file reads as after `make` was called with its path.
template <class Make>
std::string read_after(Make make) {
  const test::Folder logs;
  const ErrorFiles files(logs.path(), 0, {0});
  make(files.path(0));
  return files.read(0);
}

} // namespace

TEST_CASE("torchelastic's nested shape gives type, text, traceback and time", "[error_file]") {
  const auto error = parse_error_file(
      R"({"message": {"message": "torch.cuda.OutOfMemoryError: CUDA: full", "extraInfo": )"
      R"({"py_callstack": "Traceback\n  line 1\n", "timestamp": "1700000000"}, "errorCode": 1}})");
  REQUIRE(error);
  CHECK(error->type == "torch.cuda.OutOfMemoryError");
  CHECK(error->message == "CUDA: full");
  CHECK(error->traceback == "Traceback\n  line 1");
  CHECK(error->time == 1.7e9);
}

TEST_CASE("the flat shape gives text and time", "[error_file]") {
  const auto error = parse_error_file(R"({"message": "note: it broke", "timestamp": 12.5})");
  REQUIRE(error);
  CHECK(error->type.empty());
  CHECK(error->message == "note: it broke");
  CHECK(error->time == 12.5);
}

TEST_CASE("a message without a type's name before its colon stays whole", "[error_file]") {
  for (const char* text : {"no colon", "two words: text", ": text", "a:b", ""}) {
    INFO(text);
    const auto error =
        parse_error_file(R"({"message": {"message": ")" + std::string(text) + R"("}})");
    REQUIRE(error);
    CHECK(error->type.empty());
    CHECK(error->message == text);
  }
}

TEST_CASE("an empty file says nothing", "[error_file]") {
  CHECK_FALSE(parse_error_file(""));
  CHECK_FALSE(parse_error_file(" \n\t\r\n"));
}

TEST_CASE("anything that has neither shape is the message itself", "[error_file]") {
  for (const char* text : {"plain text",
                           "42",
                           "null",
                           "[1, {\"message\": \"inner\"}]",
                           "{\"message\": 42}",
                           "{\"message\": {\"message\": [\"a\"]}}",
                           "{\"a\": {\"message\": \"b\"}}",
                           "{\"message\": \"cut o"}) {
    INFO(text);
    const auto error = parse_error_file(text);
    REQUIRE(error);
    CHECK(error->message == text);
    CHECK(error->traceback.empty());
    CHECK_FALSE(error->time);
  }
}

TEST_CASE("of truncated JSON what came whole is kept", "[error_file]") {
  const auto error = parse_error_file(
      R"({"message": {"message": "ValueError: bad", "extraInfo": {"timestamp": "7", "py_callst)");
  REQUIRE(error);
  CHECK(error->type == "ValueError");
  CHECK(error->message == "bad");
  CHECK(error->time == 7);
}

TEST_CASE("times that are no numbers are left out", "[error_file]") {
  for (const char* time : {"\"soon\"", "\"\"", "\"nan\"", "\"1e999\"", "\"7 s\"", "true", "[1]"}) {
    INFO(time);
    const auto error =
        parse_error_file(R"({"message": "m", "timestamp": )" + std::string(time) + "}");
    REQUIRE(error);
    CHECK_FALSE(error->time);
  }
}

TEST_CASE("10 MB of any kind is cut to 64 KiB", "[error_file]") {
  const std::string text = repeated("\xC3\xA4 0123456", 1'000'000);
  for (const std::string& bytes :
       {text,
        repeated("\x01\xff", 5'000'000),
        R"({"message": ")" + text + R"("})",
        R"({"message": {"message": "E: )" + text + R"(", "extraInfo": {}}})"}) {
    const auto error = parse_error_file(bytes);
    REQUIRE(error);
    CHECK(error->message.size() <= most);
    CHECK(error->message.size() > most - 16);
    CHECK(error->message.ends_with("[...]"));
    const auto again = parse_error_file(error->message); // whole characters are left
    CHECK(again->message == error->message);
  }
}

TEST_CASE("of a long traceback the end is kept, where the fault is", "[error_file]") {
  const auto error =
      parse_error_file(R"({"message": {"message": "E: m", "extraInfo": {"py_callstack": ")" +
                       repeated("\xC3\xA4 frame", 100'000) + R"( last"}}})");
  REQUIRE(error);
  CHECK(error->traceback.size() <= most);
  CHECK(error->traceback.starts_with("[...]"));
  CHECK(error->traceback.ends_with(" last"));
}

TEST_CASE("JSON of any depth is read", "[error_file]") {
  const auto error = parse_error_file(R"({"deep": )" + repeated("[", 1'000'000) +
                                      repeated("]", 1'000'000) + R"(, "message": "found"})");
  REQUIRE(error);
  CHECK(error->message == "found");
  CHECK(parse_error_file(repeated("{\"message\":", 1'000'000)));
}

TEST_CASE("bytes that could command a terminal are made visible", "[error_file]") {
  const std::string bytes("a\x1b[31m\0\xff\xC2\x9B\x7f\r\tb\xC3\xA4\n", 17);
  const auto error = parse_error_file(bytes);
  REQUIRE(error);
  CHECK(error->message == "a\\x1b[31m\\x00\\xff\\xc2\\x9b\\x7f\\x0d\tb\xC3\xA4");
  CHECK(parse_error_file(R"({"message": "\u001b[2J"})")->message == "\\x1b[2J");
}

TEST_CASE("without a log directory a rank writes to a file in memory, by its path",
          "[error_file]") {
  const ErrorFiles files("", 0, {4, 5});
  CHECK(files.path(0) != files.path(1));
  CHECK(files.read(0).empty());
  std::ofstream(files.path(1)) << "written";
  CHECK(files.read(1) == "written");
  std::ofstream(files.path(1)) << "again";
  CHECK(files.read(1) == "again");
  CHECK(files.read(0).empty());
}

TEST_CASE("with a log directory the file is there, and an older one is kept", "[error_file]") {
  const test::Folder logs;
  logs.write("deep/attempt_2/7/error.json", "old");
  const ErrorFiles files(logs / "deep", 2, {7, 8});
  CHECK(files.path(0).ends_with("/deep/attempt_2/7/error.json"));
  CHECK(files.read(0).empty());
  for (const std::size_t i : {0U, 1U}) {
    std::ofstream(files.path(i)) << "new " << i;
    CHECK(files.read(i) == "new " + std::to_string(i));
  }
  std::string old;
  std::getline(std::ifstream(logs / "deep/attempt_2/7/error.json.1"), old);
  CHECK(old == "old");
}

TEST_CASE("a log directory that cannot be made is an error that names it", "[error_file]") {
  const test::Folder logs;
  const std::string file = logs.write("file", "");
  CHECK_THROWS_AS(ErrorFiles(file, 0, {0}), muster::SystemError);
  CHECK_THROWS_WITH(ErrorFiles(file, 0, {0}), Catch::Contains(file + "/attempt_0/0"));
}

TEST_CASE("whatever a rank puts in the file's place reads as nothing, at once", "[error_file]") {
  CHECK(read_after([](const std::string&) {}).empty());
  CHECK(read_after([](const std::string& path) { ::mkdir(path.c_str(), 0755); }).empty());
  CHECK(read_after([](const std::string& path) { ::mkfifo(path.c_str(), 0644); }).empty());
  const auto link_to = [](const std::string& target) {
    return read_after(
        [&](const std::string& path) { REQUIRE(::symlink(target.c_str(), path.c_str()) == 0); });
  };
  CHECK(link_to("error.json").empty());     // itself
  CHECK(link_to("/proc/self/mem").empty()); // a regular file whose first page cannot be read
  CHECK(link_to("/dev/zero").empty());
  if (::geteuid() != 0)
    CHECK(read_after([](const std::string& path) {
            std::ofstream(path) << "secret";
            ::chmod(path.c_str(), 0);
          }).empty());
}

TEST_CASE("at most 1 MiB is read", "[error_file]") {
  const std::string bytes = read_after(
      [](const std::string& path) { std::ofstream(path) << std::string(10'000'000, 'x'); });
  CHECK(bytes == std::string(1024 * 1024, 'x'));
}
