#include "catch.hpp"
#include "folder.hpp"
#include "process/oom.hpp"

using muster::process::cgroups_of;
using muster::process::OomWatch;

namespace {

const std::string no_limit = "9223372036854771712\n";

/// A host whose files can be written at will.
struct Host : test::Folder {
  Host(const std::string& groups, const std::string& mounts) {
    write("proc/self/cgroup", groups);
    write("proc/self/mountinfo", "23 1 8:1 / / rw - ext4 /dev/sda rw\n" + mounts);
  }
  void v1(const std::string& group, int kills, const std::string& limit) const {
    write(group + "/memory.oom_control",
          "oom_kill_disable 0\nunder_oom 0\noom_kill " + std::to_string(kills) + "\n");
    write(group + "/memory.limit_in_bytes", limit);
  }
  void v2(const std::string& group, int oom, int kills, const std::string& limit) const {
    write(group + "/memory.events",
          "low 0\nhigh 0\nmax 3\noom " + std::to_string(oom) + "\noom_kill " +
              std::to_string(kills) + "\noom_group_kill 0\n");
    write(group + "/memory.max", limit);
  }
};

const std::string v2_mount = "31 23 0:28 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n";
const std::string v1_mount =
    "35 31 0:32 / /sys/fs/cgroup/memory rw shared:9 - cgroup cgroup rw,memory\n"
    "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n";

} // namespace

TEST_CASE("in cgroup v2 a kill in the group or above it is seen once", "[oom]") {
  const Host host("0::/a/b\n", v2_mount);
  host.v2("sys/fs/cgroup/a/b", 0, 4, "max\n");
  host.v2("sys/fs/cgroup/a", 0, 4, "max\n");
  const OomWatch watch(host.path());
  CHECK_FALSE(watch.killed_since());
  CHECK(watch.limit().empty());
  host.v2("sys/fs/cgroup/a/b", 7, 4, "max\n"); // it was close, but nothing was killed
  CHECK_FALSE(watch.killed_since());
  host.v2("sys/fs/cgroup/a/b", 8, 5, "max\n");
  CHECK(watch.killed_since());
  CHECK_FALSE(watch.killed_since());
  host.v2("sys/fs/cgroup/a", 1, 5, "max\n");
  CHECK(watch.killed_since());
}

TEST_CASE("in cgroup v1 the memory controller's hierarchy is read", "[oom]") {
  const Host host("7:cpu,cpuacct:/\n4:memory:/job:1\n1:name=systemd:/\n", v1_mount);
  host.v1("sys/fs/cgroup/memory/job:1", 0, "536870912\n");
  host.v1("sys/fs/cgroup/memory", 0, no_limit);
  const OomWatch watch(host.path());
  CHECK(watch.limit() == "memory limit 512 MiB of cgroup /sys/fs/cgroup/memory/job:1");
  CHECK_FALSE(watch.killed_since());
  host.v1("sys/fs/cgroup/memory", 1, no_limit);
  CHECK(watch.killed_since());
}

TEST_CASE("on a hybrid host both versions are read, and the smallest limit is told", "[oom]") {
  const Host host("4:memory:/\n0::/user\n",
                  v1_mount + "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n");
  host.v1("sys/fs/cgroup/memory", 0, "3221225472\n");
  host.v2("sys/fs/cgroup/unified/user", 0, 0, "1610612736\n");
  const OomWatch watch(host.path());
  CHECK(watch.limit() == "memory limit 1.5 GiB of cgroup /sys/fs/cgroup/unified/user");
  host.v2("sys/fs/cgroup/unified/user", 1, 1, "1610612736\n");
  CHECK(watch.killed_since());
  host.v1("sys/fs/cgroup/memory", 1, "3221225472\n");
  CHECK(watch.killed_since());
}

TEST_CASE("a container sees its own part of the hierarchy", "[oom]") {
  const Host host("4:memory:/docker/abc/sub\n",
                  "35 31 0:32 /docker/abc /sys/fs/cg\\040mem ro - cgroup cgroup rw,memory\n");
  const auto groups = cgroups_of("memory", host.path());
  REQUIRE(groups.size() == 1);
  CHECK(groups[0].folders == std::vector{host / "sys/fs/cg mem/sub", host / "sys/fs/cg mem"});
}

TEST_CASE("a group outside of what is mounted leaves the mount itself", "[oom]") {
  for (const char* path : {"/../other", "/docker/abcd", "/elsewhere"}) {
    INFO(path);
    const Host host("0::" + std::string(path) + "\n",
                    "35 31 0:32 /docker/abc /cg ro - cgroup2 cgroup2 rw\n");
    const auto groups = cgroups_of("memory", host.path());
    REQUIRE(groups.size() == 1);
    CHECK(groups[0].folders == std::vector{host / "cg"});
  }
}

TEST_CASE("of several mounts the one that shows most of the group's ancestors counts", "[oom]") {
  const Host host("0::/a/b\n", "30 23 0:28 /a/b /part rw - cgroup2 cgroup2 rw\n" + v2_mount);
  const auto groups = cgroups_of("memory", host.path());
  REQUIRE(groups.size() == 1);
  CHECK(groups[0].folders.size() == 3);
}

TEST_CASE("without cgroups, or with files that hold something else, nothing was killed", "[oom]") {
  const test::Folder nothing;
  CHECK_FALSE(OomWatch(nothing.path()).killed_since());
  CHECK(OomWatch(nothing.path()).limit().empty());

  const Host host("0::/\nnonsense\n::\n", v2_mount + "a - b\n\n");
  host.write("sys/fs/cgroup/memory.events", "oom_kill many\n");
  host.write("sys/fs/cgroup/memory.max", "lots\n");
  CHECK_FALSE(OomWatch(host.path()).killed_since());
  CHECK(OomWatch(host.path()).limit().empty());
}
