// How `muster run` tells of failures: exit codes, causes, reports, restarts, hangs.
#include <fstream>

#include <sys/stat.h>

#include <nlohmann/json.hpp>

#include "run.hpp"

using Catch::Contains;
using test::Run;
using test::script;

namespace {

/// A cgroup below this process's own with a limit on memory, by cgroup v1.
class LimitedMemory {
public:
  explicit LimitedMemory(long limit_bytes) {
    std::istringstream groups(test::contents("/proc/self/cgroup"));
    for (std::string line; std::getline(groups, line);)
      if (const auto at = line.find(":memory:"); at != std::string::npos)
        folder_ = "/sys/fs/cgroup/memory" + line.substr(at + 8) + "/muster-test-" +
                  std::to_string(::getpid());
    works_ = !folder_.empty() && ::mkdir(folder_.c_str(), 0755) == 0 &&
             static_cast<bool>(std::ofstream(folder_ + "/memory.limit_in_bytes")
                               << limit_bytes << std::flush);
  }
  LimitedMemory(const LimitedMemory&) = delete;
  LimitedMemory& operator=(const LimitedMemory&) = delete;
  ~LimitedMemory() { ::rmdir(folder_.c_str()); }

  bool works() const { return works_; }
  void enter() const { std::ofstream(folder_ + "/cgroup.procs") << ::getpid(); }

private:
  std::string folder_;
  bool works_ = false;
};

} // namespace

TEST_CASE("the exit code is that of the first failure", "[run_failure]") {
  const std::vector<std::pair<std::string, int>> table = {
      {"exit 1", 1},
      {"exit 2", 2},
      {"exit 85", 85},
      {"exit 255", 255},
      {"kill -SEGV $$", 128 + SIGSEGV},
      {"kill -KILL $$", 128 + SIGKILL},
      {"kill -ABRT $$", 128 + SIGABRT},
      {"kill -INT $$", 128 + SIGINT},
      {"kill -37 $$", 128 + 37},
  };
  for (const auto& [what, code] : table) {
    INFO(what);
    Run run(script(2, "if [ $RANK = 1 ]; then " + what + "; fi; sleep 100 & wait"));
    CHECK(run.wait() == code);
    CHECK_THAT(run.err(), Contains("* rank 1"));
    CHECK(run.nothing_left());
  }
}

TEST_CASE("the cause is named and not its echo", "[run_failure]") {
  for (int round = 0; round < 20; ++round) {
    const test::Folder folder;
    const std::string cause = folder / "pid";
    // The others see that rank 2 has gone, as a lost connection would tell them.
    Run run(script(4,
                   "if [ $RANK = 2 ]; then ln -s $$ " + cause +
                       "; exit 7; fi; "
                       "while [ ! -L " +
                       cause +
                       " ]; do sleep 0.01; done; "
                       "while kill -0 $(readlink " +
                       cause + ") 2>/dev/null; do :; done; exit 5",
                   {"--shutdown-timeout", "5"}));
    CHECK(run.wait() == 7);
    CHECK_THAT(run.err(), Contains("* rank 2 (local rank 2") && Contains("exit code 7"));
  }
}

TEST_CASE("the exit code follows the rule that is asked for", "[run_failure]") {
  for (const auto& [rule, code] :
       std::vector<std::pair<std::string, int>>{{"first", 3}, {"max", 9}, {"torchrun", 1}}) {
    INFO(rule);
    const test::Folder folder;
    const std::string ready = folder / "ready";
    Run run(script(2,
                   "case $RANK in 0) while [ ! -e " + ready +
                       " ]; do sleep 0.01; done; exit 3;; "
                       "*) trap 'exit 9' TERM; touch " +
                       ready + "; sleep 100 & wait;; esac",
                   {"--exit-code", rule}));
    CHECK(run.wait() == code);
  }
}

TEST_CASE("a success prints nothing and leaves nothing", "[run_failure]") {
  Run run(script(4, "exit 0"), {.env = {{"OMP_NUM_THREADS", "1"}}});
  CHECK(run.wait() == 0);
  CHECK(run.out().empty());
  CHECK(run.err().empty());
  CHECK(run.nothing_left());
}

TEST_CASE("the last lines of the failed rank are in the report", "[run_failure]") {
  Run run(script(2,
                 "if [ $RANK = 1 ]; then seq 1 50; echo oops >&2; exit 4; fi; sleep 100 & wait",
                 {"--log-tail", "5"}));
  CHECK(run.wait() == 4);
  CHECK_THAT(run.err(),
             Contains("the last output of rank 1") && Contains("    oops") && Contains("    50") &&
                 !Contains("    20\n"));
}

TEST_CASE("the JSON report says all of it", "[run_failure]") {
  const test::Folder folder;
  Run run(script(3,
                 "if [ $RANK = 1 ]; then echo bad >&2; kill -9 $$; fi; sleep 100 & wait",
                 {"--report", folder / "report.json"}));
  CHECK(run.wait() == 137);
  const auto report = nlohmann::json::parse(test::contents(folder / "report.json"));
  CHECK(report["ok"] == false);
  CHECK(report["exit_code"] == 137);
  CHECK(report["first_failure"] == 1);
  CHECK(report["ranks"].size() == 3);
  CHECK(report["ranks"][1]["signal"] == 9);
  CHECK(report["ranks"][1]["log_tail"] == "bad\n");
  CHECK(report["ranks"][0]["outcome"] == "victim");
  Run good(script(1, "exit 0", {"--report", folder / "good.json"}));
  CHECK(good.wait() == 0);
  CHECK(nlohmann::json::parse(test::contents(folder / "good.json"))["ok"] == true);
  Run unwritable(script(1, "echo started", {"--report", folder / "no/report.json"}));
  CHECK(unwritable.wait() == 2);
  CHECK(unwritable.out().empty());
}

TEST_CASE("an error file is read, whatever is in it", "[run_failure]") {
  const std::string nested =
      R"({"message": {"message": "ValueError: bad batch", "extraInfo": {"py_callstack": "Traceback", "timestamp": "1"}}})";
  Run run(script(2,
                 "if [ $RANK = 0 ]; then echo '" + nested +
                     "' > $TORCHELASTIC_ERROR_FILE; exit 1; fi; sleep 100 & wait"));
  CHECK(run.wait() == 1);
  CHECK_THAT(run.err(), Contains("ValueError: bad batch") && Contains("Traceback"));
  Run broken(script(1, "head -c 100000 /dev/urandom > $TORCHELASTIC_ERROR_FILE; exit 3"));
  CHECK(broken.wait() == 3);
}

TEST_CASE("ranks in files of their own find the error file there", "[run_failure]") {
  const test::Folder folder;
  Run run(
      script(1,
             "echo '{\"message\": \"flat\", \"timestamp\": 12}' > $TORCHELASTIC_ERROR_FILE; exit 3",
             {"--log-dir", folder / "logs"}));
  CHECK(run.wait() == 3);
  CHECK_THAT(run.err(), Contains("flat"));
  CHECK_THAT(test::contents(folder / "logs/attempt_0/0/error.json"), Contains("flat"));
}

TEST_CASE("a missing library is named", "[run_failure]") {
  Run run(script(1,
                 "echo 'train: error while loading shared libraries: libnone.so.1: cannot open "
                 "shared object file: No such file or directory' >&2; exit 127"));
  CHECK(run.wait() == 127);
  CHECK_THAT(run.err(), Contains("libnone.so.1") && Contains("LD_LIBRARY_PATH"));
}

TEST_CASE("restarts need ranks that were ready once", "[run_failure]") {
  const std::string fails_once = "echo attempt $TORCHELASTIC_RESTART_COUNT; "
                                 "if [ $TORCHELASTIC_RESTART_COUNT = 0 ]; then exit 3; fi";
  Run early(script(1, fails_once, {"--max-restarts", "3"}));
  CHECK(early.wait() == 3); // it had not lived for 5 s
  CHECK(early.out() == "attempt 0\n");
  Run ready(script(1, fails_once, {"--max-restarts", "3", "--ready-after", "0"}));
  CHECK(ready.wait() == 0);
  CHECK(ready.out() == "attempt 0\nattempt 1\n");
  CHECK_THAT(ready.err(), Contains("restart 1 of 3"));
  Run always(script(2, "exit 6", {"--max-restarts", "1", "--ready-after", "0"}));
  CHECK(always.wait() == 6);
  CHECK_THAT(always.err(), Contains("after 1 restart"));
}

TEST_CASE("a stop between two attempts starts no more", "[run_failure]") {
  Run run(script(1, "echo started; exit 3", {"--max-restarts", "100", "--ready-after", "0"}));
  run.wait_for("started", 3);
  run.signal(SIGTERM);
  run.wait();
  CHECK(run.nothing_left());
  CHECK(test::Command::count(run.out(), "started") < 10);
}

TEST_CASE("a time limit ends the job with 124", "[run_failure]") {
  Run run(script(2, "sleep 100 & wait", {"--timeout", "300ms"}));
  CHECK(run.wait() == 124);
  CHECK_THAT(run.err(), Contains("did not end within 300 ms"));
  CHECK(run.nothing_left());
}

TEST_CASE("a hang names who is behind and where it is", "[run_failure]") {
  Run run({"--nproc-per-node", "2", "--hang-timeout", "300ms", MUSTER_WORKER, "run", "2", "hang"});
  CHECK(run.wait() == 124);
  CHECK_THAT(run.err(), Contains("no rank has made progress for 0.3 s") && Contains("running"));
  Run unknown(script(1, "sleep 1", {"--hang-timeout", "200ms"}));
  CHECK(unknown.wait() == 0);
  CHECK_THAT(unknown.err(), Contains("does not link muster"));
}

TEST_CASE("the OOM killer's victim is told from other kills", "[run_failure]") {
  Run killed(script(1, "kill -9 $$"));
  CHECK(killed.wait() == 137);
  CHECK_THAT(killed.err(), Contains("SIGKILL") && !Contains("probably the OOM killer"));
  const LimitedMemory group(64 << 20);
  if (!group.works()) {
    WARN("no memory cgroup can be made here: the OOM killer itself was not tried");
    return;
  }
  Run run(script(2, "if [ $RANK = 1 ]; then exec tail /dev/zero; fi; sleep 100 & wait"),
          {.prepare = [&] { group.enter(); }});
  CHECK(run.wait() == 137);
  CHECK_THAT(run.err(),
             Contains("* rank 1") && Contains("probably the OOM killer") &&
                 Contains("memory limit 64 MiB"));
  CHECK(run.nothing_left());
}

TEST_CASE("muster's own messages can be silenced", "[run_failure]") {
  Run run(script(2, "exit 3"), {.env = {{"MUSTER_LOG", "none"}}});
  CHECK(run.wait() == 3);
  CHECK(run.err().empty());
  Run wrong(script(1, "exit 0"), {.env = {{"MUSTER_LOG", "loud"}}});
  CHECK(wrong.wait() == 2);
}
