// What `muster run` starts: programs, their environment, what cannot be started.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <nlohmann/json.hpp>

#include "run.hpp"

using Catch::Contains;
using test::Run;
using test::script;
using test::sorted_lines;
using Lines = std::vector<std::string>;

TEST_CASE("ranks get torchrun's variables", "[run_program]") {
  Run run(
      script(3,
             "echo $RANK $LOCAL_RANK $WORLD_SIZE $LOCAL_WORLD_SIZE $GROUP_RANK "
             "$GROUP_WORLD_SIZE $ROLE_RANK $ROLE_WORLD_SIZE $ROLE_NAME $MASTER_ADDR "
             "$TORCHELASTIC_RESTART_COUNT $TORCHELASTIC_MAX_RESTARTS $TORCHELASTIC_RUN_ID "
             "$TORCHELASTIC_USE_AGENT_STORE",
             {"--prefix", "", "--role", "trainer", "--rdzv-id", "job7", "--max-restarts", "2"}));
  CHECK(run.wait() == 0);
  CHECK(sorted_lines(run.out()) == Lines{"0 0 3 3 0 1 0 3 trainer 127.0.0.1 0 2 job7 False",
                                         "1 1 3 3 0 1 1 3 trainer 127.0.0.1 0 2 job7 False",
                                         "2 2 3 3 0 1 2 3 trainer 127.0.0.1 0 2 job7 False"});
}

TEST_CASE("one of several nodes numbers its ranks after those of the nodes before",
          "[run_program]") {
  Run run(script(2,
                 "echo $RANK $LOCAL_RANK $WORLD_SIZE $GROUP_RANK $GROUP_WORLD_SIZE $MASTER_ADDR "
                 "$MASTER_PORT",
                 {"--nnodes",
                  "3",
                  "--node-rank",
                  "1",
                  "--master-addr",
                  "10.1.2.3",
                  "--master-port",
                  "4242",
                  "--prefix",
                  ""}));
  CHECK(run.wait() == 0);
  CHECK(sorted_lines(run.out()) == Lines{"2 0 6 1 3 10.1.2.3 4242", "3 1 6 1 3 10.1.2.3 4242"});
}

TEST_CASE("what an outer launcher left in the environment is replaced", "[run_program]") {
  Run run(script(1,
                 "echo $RANK $WORLD_SIZE $TORCHELASTIC_USE_AGENT_STORE $TORCHELASTIC_RUN_ID",
                 {"--rdzv-id", "mine"}),
          {.env = {{"RANK", "5"},
                   {"WORLD_SIZE", "8"},
                   {"LOCAL_RANK", "1"},
                   {"LOCAL_WORLD_SIZE", "4"},
                   {"MASTER_ADDR", "other"},
                   {"MASTER_PORT", "1"},
                   {"TORCHELASTIC_RUN_ID", "outer"},
                   {"TORCHELASTIC_USE_AGENT_STORE", "True"}}});
  CHECK(run.wait() == 0);
  CHECK(run.out() == "0 1 False mine\n");
}

TEST_CASE("a run inside of a rank is refused and names the variables", "[run_program]") {
  Run run({"--nproc-per-node", "1", MUSTER_COMMAND, "run", "true"});
  CHECK(run.wait() == 2);
  CHECK_THAT(run.err(), Contains("MUSTER_JOB"));
}

TEST_CASE("everything after the program belongs to the program", "[run_program]") {
  const Lines arguments = {"--r=16", "--mo", "0.9", "--log", "x", "--help", "--", "-n"};
  Lines line = {"--nproc-per-node", "1", "printf", "%s\n"};
  line.insert(line.end(), arguments.begin(), arguments.end());
  Run run(line);
  CHECK(run.wait() == 0);
  std::string expected;
  for (const std::string& argument : arguments)
    expected += argument + "\n";
  CHECK(run.out() == expected);
}

TEST_CASE("a program that is not there is 127, and told once", "[run_program]") {
  const test::Folder folder;
  for (const std::string& program : {std::string("no-such-program"), folder / "missing"}) {
    INFO(program);
    Run run({"--nproc-per-node", "8", program});
    CHECK(run.wait() == 127);
    CHECK(run.out().empty());
    CHECK(sorted_lines(run.err()).size() == 1);
  }
}

TEST_CASE("a program that cannot be executed is 126, and told once", "[run_program]") {
  const test::Folder folder;
  const std::string no_permission = folder.write("data", "x", 0644);
  const std::string no_format = folder.write("text", "hello\n", 0755);
  const std::string no_interpreter = folder.write("train", "#!/no/such/interpreter\n", 0755);
  for (const std::string& program : {no_permission, folder.path(), no_format, no_interpreter}) {
    INFO(program);
    Run run({"--nproc-per-node", "8", "--no-python", program});
    CHECK(run.wait() == 126);
    CHECK(sorted_lines(run.err()).size() == 1);
    CHECK_THAT(run.err(), Contains(program == no_interpreter ? "/no/such/interpreter" : program));
  }
}

TEST_CASE("arguments over the kernel's limit are refused with the limit", "[run_program]") {
  // The variables come to the ranks twice: as they are, and as what they choose.
  const auto run = [](std::size_t size) {
    return std::make_unique<Run>(
        std::vector<std::string>{"--nproc-per-node", "2", "true"},
        test::CommandOptions{.env = {{"PET_ROLE", std::string(size, 'x')},
                                     {"PET_RDZV_ID", std::string(20'000, 'y')}},
                             .prepare = [] {
                               const rlimit small{1 << 20, 1 << 20}; // the sum may be a quarter
                               ::setrlimit(RLIMIT_STACK, &small);
                             }});
  };
  CHECK(run(50'000)->wait() == 0);
  const auto large = run(120'000);
  CHECK(large->wait() != 0);
  CHECK_THAT(large->err(), Contains("rank 0 could not be started") && Contains("limit"));
}

TEST_CASE("a Python program runs as it is, or by python3", "[run_program]") {
  const test::Folder folder;
  const std::string plain =
      folder.write("train.py", "import os, sys\nprint(os.environ['RANK'], sys.argv[1:])\n");
  Run run({"--nproc-per-node", "2", "--prefix", "", plain, "--lr", "0.1"});
  CHECK(run.wait() == 0);
  CHECK(sorted_lines(run.out()) == Lines{"0 ['--lr', '0.1']", "1 ['--lr', '0.1']"});
  Run module({"--nproc-per-node", "1", "-m", "train", "x"},
             {.env = {{"PYTHONPATH", folder.path()}}});
  CHECK(module.wait() == 0);
  CHECK(module.out() == "0 ['x']\n");
}

TEST_CASE("a wrapper goes before the program of chosen ranks", "[run_program]") {
  Run run({"--nproc-per-node",
           "3",
           "--prefix",
           "",
           "--wrap",
           "env 'WRAPPED=a b'",
           "--wrap-ranks",
           "1",
           "sh",
           "-c",
           "echo $RANK $WRAPPED"});
  CHECK(run.wait() == 0);
  CHECK(sorted_lines(run.out()) == Lines{"0", "1 a b", "2"});
}

TEST_CASE("a dry run shows each rank's line and variables and starts nothing", "[run_program]") {
  Run run({"--nproc-per-node", "2", "--dry-run", "--print-env", "false", "x"});
  CHECK(run.wait() == 0);
  CHECK_THAT(run.out(),
             Contains("rank 1: false x") && Contains("rank 1: LOCAL_RANK=1") &&
                 Contains("rank 0: WORLD_SIZE=2"));
}

TEST_CASE("wrong options are 2, all of them told at once", "[run_program]") {
  Run run({"--nproc-per-node", "0", "--tee", "7", "--no-such-flag", "true"});
  CHECK(run.wait() == 2);
  CHECK_THAT(run.err(),
             Contains("--nproc-per-node") && Contains("--tee") && Contains("--no-such-flag"));
}

TEST_CASE("threads are the usable CPUs divided by the ranks, and one line says so",
          "[run_program]") {
  const std::string print = "echo $OMP_NUM_THREADS";
  ::unsetenv("OMP_NUM_THREADS");
  Run two(script(2, print, {"--prefix", ""}), {.env = {{"MUSTER_CPUS", "8"}}});
  CHECK(two.wait() == 0);
  CHECK(two.out() == "4\n4\n");
  CHECK_THAT(two.err(), Contains("4 threads for each rank"));
  Run many(script(3, print, {"--prefix", ""}), {.env = {{"MUSTER_CPUS", "2"}}});
  CHECK(many.wait() == 0);
  CHECK(many.out() == "1\n1\n1\n");
  Run chosen(script(1, print, {"--threads", "5"}), {.env = {{"OMP_NUM_THREADS", "2"}}});
  CHECK(chosen.wait() == 0);
  CHECK(chosen.out() == "5\n");
  Run kept(script(1, print), {.env = {{"OMP_NUM_THREADS", "2"}}});
  CHECK(kept.wait() == 0);
  CHECK(kept.out() == "2\n");
  CHECK(kept.err().empty());
}

TEST_CASE("an affinity of one CPU counts as one", "[run_program]") {
  ::unsetenv("OMP_NUM_THREADS");
  Run run(script(2, "echo $OMP_NUM_THREADS", {"--prefix", ""}), {.prepare = [] {
            cpu_set_t one;
            CPU_ZERO(&one);
            CPU_SET(0, &one);
            ::sched_setaffinity(0, sizeof one, &one);
          }});
  CHECK(run.wait() == 0);
  CHECK(run.out() == "1\n1\n");
  Run count({"--nproc-per-node", "cpu", "--prefix", "", "true"}, {.env = {{"MUSTER_CPUS", "3"}}});
  CHECK(count.wait() == 0);
}

TEST_CASE("few descriptors are refused early with a number", "[run_program]") {
  Run run({"--nproc-per-node", "64", "true"}, {.prepare = [] {
            const rlimit few{64, 64};
            ::setrlimit(RLIMIT_NOFILE, &few);
          }});
  CHECK(run.wait() == 2);
  CHECK_THAT(run.err(), Contains("open files") && Contains("64"));
}

TEST_CASE("with too few descriptors it starts all ranks or none", "[run_program]") {
  for (rlim_t limit = 4; limit < 64; ++limit) {
    INFO(limit);
    Run run({"--nproc-per-node", "3", "true"}, {.prepare = [limit] {
              const rlimit few{limit, limit};
              ::setrlimit(RLIMIT_NOFILE, &few);
            }});
    CHECK(run.wait() < 128);
    CHECK(run.nothing_left());
  }
}

TEST_CASE("a port that is taken is refused and its holder named", "[run_program]") {
  const int holder = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = ::htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  REQUIRE(::bind(holder, reinterpret_cast<sockaddr*>(&address), size) == 0);
  REQUIRE(::listen(holder, 1) == 0);
  REQUIRE(::getsockname(holder, reinterpret_cast<sockaddr*>(&address), &size) == 0);
  const std::string port = std::to_string(::ntohs(address.sin_port));
  Run run({"--nproc-per-node", "2", "--master-port", port, "true"});
  CHECK(run.wait() == 2);
  CHECK_THAT(run.err(), Contains("port " + port) && Contains("pid " + std::to_string(::getpid())));
  ::close(holder);
}

TEST_CASE("jobs that start at the same moment do not meet", "[run_program]") {
  for (int round = 0; round < 10; ++round) {
    const std::vector<std::string> line = {
        "--nproc-per-node", "2", "--prefix", "", MUSTER_WORKER, "run", "2", "results"};
    Run one(line);
    Run other(line);
    CHECK(one.wait() == 0);
    CHECK(other.wait() == 0);
    for (const Run* run : {&one, &other})
      CHECK(sorted_lines(run->out()) == Lines{"results 0.000000", "results 1.500000"});
  }
  Run ports(script(1, "echo $MASTER_PORT; sleep 100 & wait"));
  ports.wait_for("\n");
  Run others(script(1, "echo $MASTER_PORT"));
  CHECK(others.wait() == 0);
  CHECK(others.out() != ports.out());
}

TEST_CASE("a rank's program may be killed at any moment of its start", "[run_program]") {
  for (int round = 0; round < 20; ++round) {
    Run run({"--nproc-per-node", "8", "sh", "-c", "kill -9 $$"});
    CHECK(run.wait() == 137);
    CHECK(run.nothing_left());
  }
}

TEST_CASE("a rank that lost its descriptors on the way says so", "[run_program]") {
  Run run(
      {"--nproc-per-node",
       "1",
       "python3",
       "-c",
       "import subprocess, sys; sys.exit(subprocess.run(sys.argv[1:], close_fds=True).returncode)",
       MUSTER_WORKER,
       "run",
       "1",
       "results"});
  CHECK(run.wait() == 2);
  CHECK_THAT(run.err(), Contains("MUSTER_CHANNEL"));
}

TEST_CASE("a program that links muster has the launcher's store", "[run_program]") {
  Run run({"--nproc-per-node", "4", "--prefix", "", MUSTER_WORKER, "run", "4", "finish"});
  CHECK(run.wait() == 0);
  CHECK(run.out() == "running\n");
  // A shell in between hands the rank on; two programs at once cannot both be it.
  Run shell(script(2, std::string(MUSTER_WORKER) + " run 2 results; echo done", {"--prefix", ""}));
  CHECK(shell.wait() == 0);
  CHECK(sorted_lines(shell.out()) == Lines{"done", "done", "results 0.000000", "results 1.500000"});
}
