#include <muster/launch/error.hpp>

#include "catch.hpp"
#include "folder.hpp"
#include "launch/cpus.hpp"
#include "process/exec.hpp"

using muster::usable_cpus;

namespace {

int cpus_with(const std::string& groups,
              const std::string& mount,
              const std::vector<std::pair<std::string, std::string>>& files) {
  const test::Folder host;
  host.write("proc/self/cgroup", groups);
  host.write("proc/self/mountinfo", mount);
  for (const auto& [name, text] : files)
    host.write(name, text);
  return usable_cpus(host.path());
}

} // namespace

TEST_CASE("the CPU quota of a cgroup and those above it is rounded down to at least 1", "[cpus]") {
  const test::Variable unset("MUSTER_CPUS", nullptr);
  const auto allowed = static_cast<int>(muster::process::allowed_cpus().size());
  const std::string v2 = "31 23 0:28 / /cg rw - cgroup2 cgroup2 rw\n";
  CHECK(cpus_with("0::/a\n", v2, {{"cg/a/cpu.max", "max 100000\n"}}) == allowed);
  CHECK(cpus_with("0::/a\n", v2, {{"cg/a/cpu.max", "50000 100000\n"}}) == 1);
  CHECK(cpus_with("0::/a/b\n",
                  v2,
                  {{"cg/a/b/cpu.max", "max 100000\n"}, {"cg/a/cpu.max", "199000 100000\n"}}) == 1);
  CHECK(cpus_with("0::/\n", v2, {{"cg/cpu.max", "nonsense\n"}}) == allowed);
  CHECK(cpus_with("1:cpu,cpuacct:/a\n",
                  "32 31 0:29 / /cg rw - cgroup cgroup rw,cpu,cpuacct\n",
                  {{"cg/a/cpu.cfs_quota_us", "100000\n"},
                   {"cg/a/cpu.cfs_period_us", "100000\n"},
                   {"cg/cpu.cfs_quota_us", "-1\n"},
                   {"cg/cpu.cfs_period_us", "100000\n"}}) == 1);
}

TEST_CASE("MUSTER_CPUS replaces what was found out", "[cpus]") {
  const test::Variable chosen("MUSTER_CPUS", "17");
  CHECK(usable_cpus() == 17);
}

TEST_CASE("a MUSTER_CPUS that is no positive number is refused", "[cpus]") {
  for (const char* text : {"0", "-1", "two", "2x", " 2", "99999999999"}) {
    INFO(text);
    const test::Variable chosen("MUSTER_CPUS", text);
    CHECK_THROWS_AS(usable_cpus(), muster::UsageError);
    CHECK_THROWS_WITH(usable_cpus(),
                      Catch::Contains("MUSTER_CPUS '" + std::string(text) + "': write the number"));
  }
}
