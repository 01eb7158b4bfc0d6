// What `muster run` does with the output of its ranks; process/log_pump has the details.
#include <map>

#include "run.hpp"

using Catch::Contains;
using test::Command;
using test::Run;
using test::script;
using test::sorted_lines;

namespace {

std::string numbered(int lines, int width) {
  return "awk -v r=$RANK 'BEGIN{p=sprintf(\"%" + std::to_string(width) +
         "s\",\"\"); gsub(/ /,\"x\",p); for(i=0;i<" + std::to_string(lines) +
         ";i++){print r \" \" i \" \" p \" out\"; print r \" \" i \" \" p \" err\" > "
         "\"/dev/stderr\"}}'";
}

} // namespace

TEST_CASE("no line is torn or lost, on the console or in the files", "[run_output]") {
  const test::Folder folder;
  constexpr int lines = 2000;
  Run run(script(4, numbered(lines, 200), {"--log-dir", folder / "logs"}),
          {.env = {{"OMP_NUM_THREADS", "1"}}});
  CHECK(run.wait() == 0);
  for (const std::string* text : {&run.out(), &run.err()}) {
    std::map<std::string, int> next; // the line that is due, by rank
    std::istringstream stream(*text);
    int count = 0;
    for (std::string line; std::getline(stream, line); ++count) {
      REQUIRE(line.size() > 210);
      const std::string rank = line.substr(1, 1);
      REQUIRE(
          line.starts_with("[" + rank + "] " + rank + " " + std::to_string(next[rank]++) + " x"));
    }
    CHECK(count == 4 * lines);
  }
  for (int rank = 0; rank < 4; ++rank) {
    const std::string path = folder / ("logs/attempt_0/" + std::to_string(rank));
    CHECK(Command::count(test::contents(path + "/stdout.log"), " out\n") == lines);
    CHECK(Command::count(test::contents(path + "/stderr.log"), " err\n") == lines);
  }
}

TEST_CASE("half a line and its other half get one prefix", "[run_output]") {
  Run run(script(2, "printf 'half '; sleep 0.1; echo other"));
  CHECK(run.wait() == 0);
  CHECK(sorted_lines(run.out()) == std::vector<std::string>{"[0] half other", "[1] half other"});
}

TEST_CASE("a filter hides ranks on the console but not in the files", "[run_output]") {
  const test::Folder folder;
  Run run(script(12,
                 "echo I am $RANK",
                 {"--local-ranks-filter", "10-11", "--tee", "0-11:3", "--log-dir", folder.path()}));
  CHECK(run.wait() == 0);
  CHECK(sorted_lines(run.out()) == std::vector<std::string>{"[10] I am 10", "[11] I am 11"});
  CHECK(test::contents(folder / "attempt_0/3/stdout.log") == "I am 3\n");
  CHECK(test::contents(folder / "attempt_0/11/stdout.log") == "I am 11\n");
}

TEST_CASE("redirected streams are in files only", "[run_output]") {
  const test::Folder folder;
  Run run(script(2, "echo out; echo err >&2", {"--redirects", "1:1", "--log-dir", folder.path()}),
          {.env = {{"OMP_NUM_THREADS", "1"}}});
  CHECK(run.wait() == 0);
  CHECK(run.out() == "[0] out\n");
  CHECK(sorted_lines(run.err()) == std::vector<std::string>{"[0] err", "[1] err"});
  CHECK(test::contents(folder / "attempt_0/1/stdout.log") == "out\n");
}

TEST_CASE("prefixes follow their template", "[run_output]") {
  Run run(script(1, "echo x", {"--role", "trainer", "--prefix", "<${role_name}${local_rank}> "}));
  CHECK(run.wait() == 0);
  CHECK(run.out() == "<trainer0> x\n");
  Run single(script(1, "echo x"));
  CHECK(single.wait() == 0);
  CHECK(single.out() == "x\n");
}

TEST_CASE("every byte comes through", "[run_output]") {
  const test::Folder folder;
  std::string bytes;
  for (int byte = 0; byte < 256; ++byte)
    bytes += static_cast<char>(byte);
  const std::string path = folder.write("bytes", bytes);
  Run run(script(1, "cat " + path, {"--log-dir", folder / "logs"}));
  CHECK(run.wait() == 0);
  CHECK(run.out() == bytes);
  CHECK(test::contents(folder / "logs/attempt_0/0/stdout.log") == bytes);
}

TEST_CASE("a grandchild that holds the output does not hold the job", "[run_output]") {
  Run run(script(1, "setsid sleep 1000 & echo done"));
  CHECK(run.wait() == 0);
  CHECK_THAT(run.out(), Contains("done"));
  CHECK(run.nothing_left());
}

TEST_CASE("a reader that does not read costs no memory", "[run_output]") {
  Run run(script(2, "yes 0123456789012345678901234567890123456789"));
  run.wait_for("0123", 1); // and from here on nobody reads
  const auto resident = [&] {
    std::istringstream status(test::contents("/proc/" + std::to_string(run.pid()) + "/statm"));
    long pages = 0;
    status >> pages >> pages;
    return pages * ::sysconf(_SC_PAGESIZE);
  };
  ::sleep(1); // time to go wrong in
  CHECK(resident() < 64L << 20);
  run.signal(SIGTERM);
  CHECK(run.wait() == 128 + SIGTERM);
  CHECK(run.nothing_left());
}

TEST_CASE("a log folder that cannot be written is refused before anything starts", "[run_output]") {
  Run run(script(2, "echo started", {"--log-dir", "/proc/no"}));
  CHECK(run.wait() == 2);
  CHECK(run.out().empty());
  CHECK_THAT(run.err(), Contains("/proc/no"));
}

TEST_CASE("nothing is left in the temporary folder unless files are asked for", "[run_output]") {
  const test::Folder folder;
  Run plain(script(2, "echo x"), {.env = {{"TMPDIR", folder.path()}}});
  CHECK(plain.wait() == 0);
  CHECK(std::filesystem::is_empty(folder.path()));
  Run files(script(2, "echo x", {"--redirects", "3"}), {.env = {{"TMPDIR", folder.path()}}});
  CHECK(files.wait() == 0);
  CHECK_FALSE(std::filesystem::is_empty(folder.path()));
}
