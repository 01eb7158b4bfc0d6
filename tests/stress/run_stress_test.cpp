// Many ranks, many runs, kills at random moments.
#include <random>

#include "run.hpp"

using test::Run;

TEST_CASE("two hundred runs of 64 ranks that end at once all end", "[stress]") {
  for (int i = 0; i < 200; ++i) {
    Run run({"--nproc-per-node", "64", "/bin/true"});
    REQUIRE(run.wait() == 0);
  }
}

TEST_CASE("512 ranks run, and their output is whole", "[stress]") {
  Run run({"--nproc-per-node", "512", "sh", "-c", "echo rank $RANK; exit 0"});
  CHECK(run.wait() == 0);
  CHECK(test::sorted_lines(run.out()).size() == 512);
}

TEST_CASE("256 ranks that link muster meet in the launcher's store", "[stress]") {
  Run run({"--nproc-per-node", "256", MUSTER_WORKER, "run", "256", "finish"});
  CHECK(run.wait() == 0);
  CHECK(Run::count(run.out(), "running") == 1);
}

TEST_CASE("a launcher or a rank killed at any moment leaves nothing", "[stress]") {
  std::minstd_rand random(11);
  for (int round = 0; round < 200; ++round) {
    INFO(round);
    Run run({"--nproc-per-node",
             "4",
             "--shutdown-timeout",
             "0.1",
             "sh",
             "-c",
             "trap '' TERM; sleep 1000 & echo up; wait; sleep 1000"});
    ::usleep(static_cast<useconds_t>(random() % 20'000)); // any moment is one to die in
    if (round % 3 == 0) {
      run.signal(SIGKILL);
    } else if (round % 3 == 1) {
      run.signal(SIGTERM);
    } else {
      for (const pid_t pid : run.processes())
        if (pid != run.pid()) {
          ::kill(pid, SIGKILL);
          break;
        }
      run.signal(SIGTERM);
    }
    run.wait();
    REQUIRE(run.nothing_left());
  }
}
