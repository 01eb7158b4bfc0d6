// A launcher of your own: what it writes into the RankSpecs arrives in the ranks.
#include <muster/launch.hpp>

#include <cstdio>
#include <cstdlib>

#include <sched.h>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

namespace {

/// The CPUs that this process may run on.
std::vector<int> usable_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  ::sched_getaffinity(0, sizeof set, &set);
  std::vector<int> cpus;
  for (std::size_t cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &set))
      cpus.push_back(static_cast<int>(cpu));
  return cpus;
}

/// Gives each rank a CPU of its own, a variable, and bytes under a name.
class TunedLauncher : public muster::SpawnLauncher {
public:
  using SpawnLauncher::SpawnLauncher;

  muster::JobReport spawn(muster::Task task) override {
    const std::vector<int> cpus = usable_cpus();
    for (auto& rank : task.ranks) {
      const auto local = static_cast<std::size_t>(rank.local_rank);
      rank.env["NCCL_DEBUG_FILE"] = fmt::format("nccl.{}.log", rank.rank);
      rank.cpus = {cpus[local % cpus.size()]};
      rank.extra["dataset"] = fmt::format("/scratch/shard-{}", rank.rank);
    }
    return SpawnLauncher::spawn(std::move(task));
  }
};

/// Runs in every rank: what has arrived there.
std::string arrived(muster::World& world) {
  const char* variable = std::getenv("NCCL_DEBUG_FILE");
  return fmt::format("rank {} of {}: NCCL_DEBUG_FILE={} cpus={} dataset={}",
                     world.rank,
                     world.size,
                     variable ? variable : "(unset)",
                     fmt::join(usable_cpus(), ","),
                     world.extra.at("dataset"));
}

} // namespace

int main(int argc, char** argv) {
  muster::init(argc, argv);
  CLI::App app("Shows what a launcher of your own can give to its ranks.");
  int nprocs = 2;
  std::string start_method = "forkserver";
  app.add_option("--nprocs", nprocs, "ranks");
  app.add_option("--start-method", start_method, "spawn, fork or forkserver");
  CLI11_PARSE(app, argc, argv);
  return muster::guard([&] {
    TunedLauncher launcher{muster::start_method_from(start_method), nprocs};
    for (const std::string& line : launcher.run(arrived))
      std::puts(line.c_str());
  });
}
