// Ranks have the CPUs and the memory policy of their RankSpec.
#include <muster/launch/spawn_launcher.hpp>

#include <thread>

#include <linux/mempolicy.h>
#include <sys/syscall.h>

#include <fmt/format.h>

#include "process/exec.hpp"
#include "process/memory_policy.hpp"
#include "ranks.hpp"

using muster::SpawnLauncher;
using muster::StartMethod;
using muster::World;
using test::quiet;

namespace {

/// The kernel's answer about this thread: mode, then the mask's first word; "refused" without one.
std::string memory_policy() {
  int mode = -1;
  unsigned long mask[64] = {};
  if (::syscall(SYS_get_mempolicy, &mode, mask, sizeof mask * 8, nullptr, 0) != 0)
    return "refused";
  return fmt::format("{} {}", mode, mask[0]);
}

/// What a thread of its own has after asking for node 0, and so what a rank must have.
std::string expected_policy() {
  std::string policy;
  std::thread([&] {
    const std::uint64_t node0 = 1;
    muster::process::apply_memory_policy(&node0, 64);
    policy = memory_policy();
  }).join();
  return policy;
}

std::pair<std::string, std::string> bound_to(World&) {
  const std::string status = test::contents("/proc/self/status");
  const std::string field = "Cpus_allowed_list:\t";
  const auto at = status.find(field) + field.size();
  return {status.substr(at, status.find('\n', at) - at), memory_policy()};
}

class BoundLauncher : public SpawnLauncher {
public:
  using SpawnLauncher::SpawnLauncher;
  muster::JobReport spawn(muster::Task task) override {
    for (auto& rank : task.ranks) {
      rank.cpus = {muster::process::allowed_cpus().back()};
      rank.memory_nodes = nodes;
    }
    return SpawnLauncher::spawn(std::move(task));
  }
  std::vector<int> nodes = {0};
};

} // namespace

TEST_CASE("a rank runs on its CPUs and has memory from its nodes", "[rank_binding]") {
  const std::string cpu = std::to_string(muster::process::allowed_cpus().back());
  const std::string policy = expected_policy();
  const std::string own = memory_policy();
  if (policy != "refused")
    CHECK(policy != own);
  for (const StartMethod method : test::every_method) {
    INFO(to_string(method));
    const auto found = BoundLauncher(method, 2, quiet()).run(bound_to);
    CHECK(found == std::vector(2, std::pair(cpu, policy)));
  }
  CHECK(memory_policy() == own);
}

TEST_CASE("a rank without memory nodes keeps the launcher's policy", "[rank_binding]") {
  for (const StartMethod method : test::every_method) {
    INFO(to_string(method));
    CHECK(SpawnLauncher(method, 1, quiet()).run(bound_to)[0].second == memory_policy());
  }
}

TEST_CASE("a NUMA node that is not there is refused before anything starts", "[rank_binding]") {
  BoundLauncher launcher(test::any_method, 1, quiet());
  launcher.nodes = {0, -2};
  CHECK_THROWS_AS(launcher.run(bound_to), muster::UsageError);
  CHECK_THROWS_WITH(launcher.run(bound_to), Catch::Contains("rank 0: NUMA node -2"));
}
