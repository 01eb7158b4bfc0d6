// Signals to `muster run`, its grace, its place in shells, pipelines and containers.
#include <csignal>

#include "run.hpp"

using Catch::Contains;
using test::Command;
using test::eventually;
using test::Run;
using test::script;

namespace {

/// Says "ready", counts the signals it gets, and goes on for ever.
std::string counts(const std::string& signal, const std::string& then = ":") {
  return "trap 'echo got " + signal + "; " + then + "' " + signal +
         "; echo ready; while :; do sleep 100 & wait $!; done";
}

char state_of(pid_t pid) {
  const std::string stat = test::contents("/proc/" + std::to_string(pid) + "/stat");
  const auto name_end = stat.rfind(')');
  return name_end == std::string::npos ? '?' : stat.at(name_end + 2);
}

} // namespace

TEST_CASE("INT, TERM, HUP and QUIT stop the job with 128 + signal", "[run_signals]") {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) {
    INFO(signal);
    Run run(script(2, "echo ready; sleep 100 & wait"));
    run.wait_for("ready", 2);
    run.signal(signal);
    CHECK(run.wait() == 128 + signal);
    CHECK(run.nothing_left());
  }
}

TEST_CASE("TERM reaches each rank once, which has its grace to save", "[run_signals]") {
  Run run(script(2, counts("TERM", "sleep 0.3; echo saved; exit 0"), {"--shutdown-timeout", "20"}));
  run.wait_for("ready", 2);
  run.signal(SIGTERM);
  CHECK(run.wait() == 128 + SIGTERM);
  CHECK(Command::count(run.out(), "got TERM") == 2);
  CHECK(Command::count(run.out(), "saved") == 2);
}

TEST_CASE("a rank that does not obey is killed when its grace is over", "[run_signals]") {
  Run run(script(
      2, "trap '' TERM; echo ready; while :; do sleep 1; done", {"--shutdown-timeout", "0.3"}));
  run.wait_for("ready", 2);
  run.signal(SIGTERM);
  CHECK(run.wait() == 128 + SIGTERM);
  CHECK_THAT(run.err(), Contains("SIGKILL"));
  CHECK(run.nothing_left());
}

TEST_CASE("a second signal does not wait for the grace", "[run_signals]") {
  Run run(script(2,
                 "trap '' TERM INT; echo ready; while :; do sleep 1; done",
                 {"--shutdown-timeout", "1000"}));
  run.wait_for("ready", 2);
  run.signal(SIGINT);
  run.wait_for_err("stopped by"); // told when it begins, not at its end
  run.signal(SIGINT);
  CHECK(run.wait() == 128 + SIGINT);
  CHECK(run.nothing_left());
}

TEST_CASE("USR1 and USR2 are passed on and end nothing", "[run_signals]") {
  Run run(script(2, counts("USR1")));
  run.wait_for("ready", 2);
  run.signal(SIGUSR1);
  run.wait_for("got USR1", 2);
  run.signal(SIGUSR1);
  run.wait_for("got USR1", 4);
  run.signal(SIGTERM);
  CHECK(run.wait() == 128 + SIGTERM);
}

TEST_CASE("HUP is passed on where it is asked for", "[run_signals]") {
  Run run(script(1, counts("HUP"), {"--forward", "HUP"}));
  run.wait_for("ready");
  run.signal(SIGHUP);
  run.wait_for("got HUP");
  run.signal(SIGTERM);
  CHECK(run.wait() == 128 + SIGTERM);
}

TEST_CASE("nohup holds: an ignored HUP ends nothing", "[run_signals]") {
  const test::Folder folder;
  const std::string go = folder / "go";
  Run run(script(2, "echo ready; while [ ! -e " + go + " ]; do sleep 0.02; done; echo done"),
          {.prepare = [] { std::signal(SIGHUP, SIG_IGN); }});
  run.wait_for("ready", 2);
  run.signal(SIGHUP);
  folder.write("go", "");
  CHECK(run.wait() == 0);
  CHECK(Command::count(run.out(), "done") == 2);
}

TEST_CASE("inherited masks and dispositions make no difference", "[run_signals]") {
  Run run(script(2, "echo ready; sleep 100 & wait"), {.prepare = [] {
            std::signal(SIGCHLD, SIG_IGN);
            std::signal(SIGPIPE, SIG_IGN);
            sigset_t term;
            ::sigemptyset(&term);
            ::sigaddset(&term, SIGTERM);
            ::sigprocmask(SIG_BLOCK, &term, nullptr);
          }});
  run.wait_for("ready", 2);
  run.signal(SIGTERM);
  CHECK(run.wait() == 128 + SIGTERM);
}

TEST_CASE("everything that ranks started ends with them", "[run_signals]") {
  const std::vector<std::string> families = {
      "sleep 1000 & sleep 1000",                         // children
      "(sleep 1000 &) ; sleep 1000",                     // orphans
      "setsid sleep 1000 & sleep 1000",                  // a session of its own
      "setsid sh -c 'setsid sleep 1000 &' ; sleep 1000", // a daemon
      "trap '' TERM; sleep 1000 & wait",
  };
  for (const std::string& family : families)
    for (const bool killed : {false, true}) {
      INFO(family << (killed ? ", launcher killed" : ", rank fails"));
      const test::Folder folder;
      const std::string go = folder / "go";
      Run run(script(2,
                     "echo ready; if [ $RANK = 1 ]; then while [ ! -e " + go +
                         " ]; do sleep 0.02; done; exit 3; fi; " + family,
                     {"--shutdown-timeout", "0.2"}));
      run.wait_for("ready", 2);
      const bool daemon = family.find("setsid") != std::string::npos;
      if (killed && daemon)
        continue; // daemons are found while the launcher lives
      if (killed)
        run.signal(SIGKILL);
      else
        folder.write("go", "");
      CHECK(run.wait() == (killed ? 137 : 3));
      CHECK(run.nothing_left());
    }
}

TEST_CASE("a stopped rank is continued to see TERM", "[run_signals]") {
  Run run(script(1, "echo ready; kill -STOP $$; sleep 100", {"--shutdown-timeout", "30"}));
  run.wait_for("ready");
  run.signal(SIGTERM);
  CHECK(run.wait() == 128 + SIGTERM);
}

TEST_CASE("Ctrl-Z stops the ranks with the launcher, and fg continues them", "[run_signals]") {
  Run run(script(2, "echo ready; while :; do sleep 0.05; done"));
  run.wait_for("ready", 2);
  run.signal(SIGTSTP);
  REQUIRE(eventually([&] { return state_of(run.pid()) == 'T'; }));
  CHECK(eventually([&] {
    const auto all = run.processes();
    return std::count_if(all.begin(), all.end(), [](pid_t pid) { return state_of(pid) == 'T'; }) >=
           3;
  }));
  run.signal(SIGCONT);
  REQUIRE(eventually([&] { return state_of(run.pid()) != 'T'; }));
  run.signal(SIGTERM);
  CHECK(run.wait() == 128 + SIGTERM);
  CHECK(run.nothing_left());
}

TEST_CASE("a pipeline whose reader goes away ends", "[run_signals]") {
  const std::string line =
      std::string(MUSTER_COMMAND) + " run --nproc-per-node 2 sh -c 'seq 1 200000' | head -n 1";
  Command pipeline({"sh", "-c", line});
  CHECK(pipeline.wait() == 0);
  CHECK(test::sorted_lines(pipeline.out()).size() == 1);
}

TEST_CASE("closed and full standard output neither crash nor hang it", "[run_signals]") {
  for (const std::string how :
       {">&-", "2>&-", ">&- 2>&-", "<&-", "<&- >&- 2>&-", ">/dev/full", ">/dev/full 2>&1"}) {
    INFO(how);
    Command command({"sh",
                     "-c",
                     "exec " + std::string(MUSTER_COMMAND) +
                         " run --nproc-per-node 2 sh -c 'seq 1 2000; exit 3' " + how});
    CHECK(command.wait() == 3);
  }
}

TEST_CASE("as process 1 of a container it reaps orphans and obeys TERM", "[run_signals]") {
  Command container({"unshare",
                     "--pid",
                     "--fork",
                     "--mount-proc",
                     "--kill-child",
                     MUSTER_COMMAND,
                     "run",
                     "--nproc-per-node",
                     "1",
                     "sh",
                     "-c",
                     "(setsid sh -c 'exit 0' &) ; sleep 0.2; "
                     "if grep -l 'State:.Z' /proc/[0-9]*/status; then echo zombies; fi; "
                     "kill -TERM 1; sleep 100"});
  CHECK(container.wait() == 128 + SIGTERM);
  CHECK_THAT(container.out(), !Contains("zombies"));
}

TEST_CASE("a signal that is not to be handled does what it always does", "[run_signals]") {
  Run run(script(1, "echo ready; sleep 100", {"--signals-to-handle", "TERM"}));
  run.wait_for("ready");
  run.signal(SIGINT);
  CHECK(run.wait() == 128 + SIGINT);
  CHECK(run.err().find("stopped by") == std::string::npos);
  CHECK(run.nothing_left()); // the guardian's work
}

TEST_CASE("what is typed while it runs stays for the shell", "[run_signals]") {
  Command shell(
      {"sh", "-c", std::string(MUSTER_COMMAND) + " run -n 2 true; read line; echo \"got $line\""},
      {.input = "echo test\n"});
  CHECK(shell.wait() == 0);
  CHECK(shell.out() == "got echo test\n");
}

TEST_CASE("a debugger's prompt is seen before it is answered", "[run_signals]") {
  Run run({"-n", "1", "--stdin", "0", "python3", "-c", "print('got', input('(Pdb) '))"});
  run.wait_for("(Pdb) ");
  run.give("p 1\n");
  CHECK(run.wait() == 0);
  CHECK_THAT(run.out(), Contains("got p 1"));
}

TEST_CASE("standard input goes to the ranks that are to read it", "[run_signals]") {
  Run none(script(2, "cat; echo end", {"--prefix", ""}), {.input = "abc\n"});
  CHECK(none.wait() == 0);
  CHECK(none.out() == "end\nend\n");
  Run one(script(2, "cat; echo end", {"--prefix", "", "--stdin", "1"}), {.input = "abc\n"});
  CHECK(one.wait() == 0);
  CHECK(Command::count(one.out(), "abc") == 1);
  Run all(script(3, "cat", {"--prefix", "", "--stdin", "all"}), {.input = "abc\n"});
  CHECK(all.wait() == 0);
  CHECK(all.out() == "abc\nabc\nabc\n");
}
