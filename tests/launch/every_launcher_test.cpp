// What holds for every launcher and start method, and for `muster run`; docs/concepts.md has the
// table of what differs. Each case is a run of the worker program.
#include <algorithm>
#include <csignal>
#include <sstream>

#include "command.hpp"

using Catch::Contains;
using test::Command;

namespace {

constexpr const char* every_kind[] = {"spawn", "fork", "forkserver", "subprocess", "run"};

struct Ran {
  int code;
  std::string out;
  std::string err;
};

std::vector<std::string>
command_line(const std::string& kind, int nprocs, const std::string& mode) {
  const std::string number = std::to_string(nprocs);
  std::vector<std::string> argv;
  if (kind == "run")
    argv = {MUSTER_COMMAND,
            "run",
            "--nproc-per-node",
            number,
            "--prefix",
            "",
            "--max-restarts",
            mode == "restarted" ? "2" : "0",
            "--shutdown-timeout",
            "1"};
  argv.insert(argv.end(), {MUSTER_WORKER, kind, number, mode});
  return argv;
}

Ran run(const std::string& kind, int nprocs, const std::string& mode) {
  Command command(command_line(kind, nprocs, mode));
  const int code = command.wait();
  return {code, command.out(), command.err()};
}

/// The lines that begin with "results", one launcher's or, under `muster run`, one for each rank.
std::string results(const Ran& ran) {
  std::string found;
  std::istringstream lines(ran.out);
  std::vector<std::string> all;
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with("results"))
      all.push_back(line.substr(7));
  std::sort(all.begin(), all.end());
  for (const std::string& line : all)
    found += line;
  return found;
}

} // namespace

TEST_CASE("every rank's result comes back, in rank order", "[every_launcher]") {
  for (const std::string kind : every_kind) {
    INFO(kind);
    const Ran ran = run(kind, 3, "results");
    INFO(ran.err);
    CHECK(results(ran) == " 0.000000 1.500000 3.000000");
  }
}

TEST_CASE("a second launch by SubprocessLauncher is refused and names the way out",
          "[every_launcher]") {
  const Ran ran = run("subprocess", 2, "results");
  CHECK(ran.code == 2);
  CHECK_THAT(ran.err, Contains("second launch") && Contains("SpawnLauncher"));
}

TEST_CASE("large arguments and results travel whole", "[every_launcher]") {
  for (const std::string kind : every_kind) {
    INFO(kind);
    const Ran ran = run(kind, 2, "large");
    INFO(ran.err);
    CHECK(ran.code == 0);
    CHECK(results(ran) == " 3000000 6000000");
  }
}

TEST_CASE("the variables of torchrun's contract are those of the world", "[every_launcher]") {
  for (const std::string kind : every_kind) {
    INFO(kind);
    const Ran ran = run(kind, 2, "environment");
    INFO(ran.err);
    CHECK(ran.code == 0);
    CHECK(results(ran) == " muster/0 muster/0");
  }
}

TEST_CASE("an exception in a rank is told with type and text", "[every_launcher]") {
  for (const std::string kind : every_kind) {
    INFO(kind);
    const Ran ran = run(kind, 3, "throw");
    INFO(ran.err);
    CHECK(ran.code == 1);
    CHECK_THAT(ran.err,
               Contains("std::domain_error: the loss is not finite; stopping the others") &&
                   Contains("* rank 2 (local rank 2") && Contains("victim"));
  }
}

TEST_CASE("a destructor that hangs does not hold a rank that threw", "[every_launcher]") {
  for (const std::string kind : every_kind) {
    INFO(kind);
    const Ran ran = run(kind, 2, "stuck");
    CHECK(ran.code == 1);
    CHECK_THAT(ran.err, Contains("std::domain_error: the loss is not finite"));
  }
}

TEST_CASE("a crash is told by its signal and its place", "[every_launcher]") {
  for (const std::string kind : every_kind) {
    INFO(kind);
    const Ran ran = run(kind, 3, "crash");
    INFO(ran.err);
    CHECK(ran.code == 128 + SIGABRT);
    CHECK_THAT(ran.err,
               Contains("signal 6 (SIGABRT)") && Contains("* rank 2") &&
                   Contains("where rank 2 was") && Contains("crashes(muster::World&)") &&
                   Contains("worker.cpp:"));
  }
}

TEST_CASE("an exit code is passed on", "[every_launcher]") {
  for (const std::string kind : every_kind) {
    INFO(kind);
    const Ran ran = run(kind, 3, "fail");
    CHECK(ran.code == 3);
    CHECK_THAT(ran.err, Contains("exit code 3; stopping the others"));
  }
}

TEST_CASE("a rank that ends before its function returned is a failure, but not a program's",
          "[every_launcher]") {
  for (const std::string kind : {"spawn", "fork", "forkserver", "subprocess"}) {
    INFO(kind);
    const Ran ran = run(kind, 2, "leave");
    CHECK(ran.code == 1);
    CHECK_THAT(ran.err, Contains("it ended before its function returned"));
  }
  CHECK(run("run", 1, "leave").code == 0);
}

TEST_CASE("a launch inside of a rank is refused", "[every_launcher]") {
  for (const std::string kind : every_kind) {
    INFO(kind);
    const Ran ran = run(kind, 2, "nested");
    CHECK(ran.code != 0);
    CHECK_THAT(ran.err, Contains("launch inside a rank"));
  }
}

TEST_CASE("restarts begin anew with the attempt's number", "[every_launcher]") {
  for (const std::string kind : every_kind) {
    INFO(kind);
    const Ran ran = run(kind, 2, "restarted");
    INFO(ran.err);
    CHECK(ran.code == 0);
    CHECK(results(ran) == " attempt 2 attempt 2");
    CHECK(Command::count(ran.err, "exit code 7") >= 2);
  }
}
