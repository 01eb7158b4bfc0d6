#include <csignal>

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "catch.hpp"
#include "launch/hint.hpp"
#include "process/fd.hpp"

using muster::ExitStatus;
using muster::RankReport;
using muster::process::Fd;
using muster::process::hint_for;
using muster::process::HintFacts;
using muster::process::holder_of_port;

namespace {

RankReport failed(ExitStatus status, const std::string& log = "") {
  RankReport rank;
  rank.pid = 4242;
  rank.host = "here";
  rank.outcome = muster::Outcome::failed;
  rank.status = status;
  rank.log_tail = log;
  return rank;
}

std::string nobody(int) { return ""; }

const HintFacts nothing{.holder_of_port = nobody};

std::string hint_for_text(const std::string& log, int code = 1) {
  return hint_for(failed(ExitStatus::exited(code), log), nothing);
}

std::string core_hint(const std::string& pattern, bool uses_pid = false) {
  return hint_for(failed(ExitStatus::signaled(SIGSEGV, true)),
                  {.core_pattern = pattern,
                   .core_uses_pid = uses_pid,
                   .program = "/opt/bin/a_rather_long_name",
                   .cwd = "/work"});
}

} // namespace

TEST_CASE("a signal gets the hint that the facts support", "[hint]") {
  struct Row {
    int signal;
    HintFacts facts;
    std::string hint;
  };
  const HintFacts oom{.oom_killed = true, .memory_limit = "memory limit 512 MiB of cgroup /a"};
  const HintFacts full{.shm_bytes = 64 << 20, .shm_free_bytes = 0};
  const HintFacts roomy{.shm_bytes = 64 << 20, .shm_free_bytes = 32 << 20};
  const std::vector<Row> rows{
      {SIGKILL, oom, "probably the OOM killer (memory limit 512 MiB of cgroup /a)"},
      {SIGKILL, {.oom_killed = true}, "probably the OOM killer"},
      {SIGKILL,
       {.memory_limit = oom.memory_limit},
       "sent by somebody else: an administrator, a scheduler or the OOM killer of another cgroup"},
      {SIGKILL, {.oom_killed = true, .killed_by_us = true}, ""},
      {SIGTERM, {.killed_by_us = true}, ""},
      {SIGSEGV, oom, ""},
      {SIGTERM, {}, ""},
      {SIGBUS,
       full,
       "probably since /dev/shm is full (64 MiB); enlarge it (docker run --shm-size)"},
      {SIGBUS, roomy, ""},
      {SIGBUS, {}, ""},
      {SIGILL,
       {},
       "probably built for another CPU (-march), which has instructions this one lacks"},
      {SIGXCPU, {}, "over the limit on CPU time (ulimit -t)"},
      {SIGXFSZ, {}, "over the limit on the size of files (ulimit -f)"},
      {SIGRTMIN + 3, {}, ""},
  };
  for (const Row& row : rows) {
    INFO(row.signal << " " << row.hint);
    CHECK(hint_for(failed(ExitStatus::signaled(row.signal)), row.facts) == row.hint);
  }
}

TEST_CASE("exit code 137 is a hint at the OOM killer only if it was at work", "[hint]") {
  const RankReport rank = failed(ExitStatus::exited(137));
  CHECK(hint_for(rank, {.oom_killed = true}) ==
        "probably the OOM killer, which killed a process that this rank ran");
  CHECK(hint_for(rank, nothing).empty());
}

TEST_CASE("what a rank wrote last gives the hint", "[hint]") {
  struct Row {
    const char* text;
    const char* hint;
  };
  for (
      const Row& row : {
          Row{"x\nModuleNotFoundError: No module named 'a.b'\n",
              "this Python has no module a.b; install it, or choose another Python by PYTHON_EXEC"},
          Row{"ModuleNotFoundError: No module named 'cut", ""},
          Row{"RuntimeError: CUDA error: out of memory\nmore",
              "the GPU's memory is full; nvidia-smi shows who uses it"},
          Row{"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate",
              "the GPU's memory is full; nvidia-smi shows who uses it"},
          Row{"java.lang.OutOfMemoryError: heap", ""},
          Row{"OSError: [Errno 98] Address already in use",
              "another process uses the port that it wanted"},
          Row{"12:34:56 [W socket.cpp:426] failed to bind to [::]:29500 (errno: 98 - Address "
              "already "
              "in use).",
              "port 29500 is in use"},
          Row{"failed to listen. port: 29400, useIpv6: false, code: -98, name: EADDRINUSE, "
              "message: "
              "address already in use",
              "port 29400 is in use"},
          Row{"bind 10.0.0.1:80: Address already in use", "port 80 is in use"},
          Row{"2.1.0 12:34: Address already in use",
              "another process uses the port that it wanted"},
          Row{"port 70000: Address already in use", "another process uses the port that it wanted"},
          Row{"port", ""},
          Row{"", ""},
      }) {
    INFO(row.text);
    CHECK(hint_for_text(row.text) == row.hint);
  }
}

TEST_CASE("an exception's text counts as what a rank wrote", "[hint]") {
  RankReport rank = failed(ExitStatus::exited(1));
  rank.exception_type = "c10::OutOfMemoryError";
  CHECK(hint_for(rank, nothing) == "the GPU's memory is full; nvidia-smi shows who uses it");
  rank.exception_type = "muster::SystemError";
  rank.message = "binding port 4000: Address already in use";
  HintFacts facts;
  facts.holder_of_port = [](int port) { return "pid 7 (p" + std::to_string(port) + ")"; };
  CHECK(hint_for(rank, facts) == "port 4000 is in use by pid 7 (p4000)");
}

TEST_CASE("a missing library is named if the loader says so and exits with 127", "[hint]") {
  const std::string text =
      "./train: error while loading shared libraries: libfoo.so.1: cannot open "
      "shared object file: No such file or directory\n";
  CHECK(hint_for_text(text, 127) ==
        "the library libfoo.so.1 was not found; install it, or add its folder to LD_LIBRARY_PATH");
  CHECK(hint_for_text(text, 1).empty());
  CHECK(hint_for_text("error while loading shared libraries: libc.so: wrong ELF class", 127) ==
        "the dynamic loader refused libc.so: wrong ELF class");
  CHECK(hint_for_text("", 127).empty());
}

TEST_CASE("a core dump is told where it is", "[hint]") {
  CHECK(core_hint("core") == "core file /work/core");
  CHECK(core_hint("core", true) == "core file /work/core.4242");
  CHECK(core_hint("core.%p", true) == "core file /work/core.4242");
  CHECK(core_hint("/cores/%e.%s.%h.%%.%t%") == "core file /cores/a_rather_long_n.11.here.%.*");
  CHECK(core_hint("/c/%E") == "core file /c/!opt!bin!a_rather_long_name");
  CHECK(core_hint("|/usr/lib/systemd/systemd-coredump %P %u") ==
        "core dump: coredumpctl info 4242");
  CHECK(core_hint("|/usr/share/apport/apport -p%p") == "core dump went to apport, see /var/crash");
  CHECK(core_hint("|/opt/collect %p") == "core dump went to /opt/collect");
  CHECK(core_hint("@/run/cores") == "core dump went to the socket /run/cores");
  CHECK(core_hint("").empty());
  CHECK(hint_for(failed(ExitStatus::signaled(SIGSEGV)), {.core_pattern = "core"}).empty());
}

TEST_CASE("a core dump is told behind another hint", "[hint]") {
  CHECK(hint_for(failed(ExitStatus::signaled(SIGXCPU, true)), {.core_pattern = "/c"}) ==
        "over the limit on CPU time (ulimit -t); core file /c");
}

TEST_CASE("a rank that succeeded gets no hint", "[hint]") {
  RankReport rank = failed(ExitStatus(), "Address already in use");
  rank.outcome = muster::Outcome::succeeded;
  CHECK(hint_for(rank, nothing).empty());
}

TEST_CASE("the process that holds a port is found", "[hint]") {
  const bool v6 = GENERATE(false, true);
  const Fd socket(::socket(v6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (v6 && !socket)
    return;
  REQUIRE(socket);
  sockaddr_in6 address6{};
  sockaddr_in address{};
  address6.sin6_family = AF_INET6;
  address6.sin6_addr = in6addr_loopback;
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  auto* const name =
      v6 ? reinterpret_cast<sockaddr*>(&address6) : reinterpret_cast<sockaddr*>(&address);
  socklen_t size = v6 ? sizeof(address6) : sizeof(address);
  if (v6 && ::bind(socket.get(), name, size) != 0)
    return;
  REQUIRE(::listen(socket.get(), 1) == 0);
  REQUIRE(::getsockname(socket.get(), name, &size) == 0);
  const int port = ntohs(v6 ? address6.sin6_port : address.sin_port);
  CHECK_THAT(holder_of_port(port), Catch::Contains("pid " + std::to_string(::getpid()) + " ("));
  CHECK(holder_of_port(0).empty());
}

TEST_CASE("the facts of this host are what the kernel says", "[hint]") {
  const HintFacts facts = muster::process::facts_of_this_host();
  CHECK(facts.core_pattern.find('\n') == std::string::npos);
  CHECK(facts.shm_free_bytes <= facts.shm_bytes);
}
