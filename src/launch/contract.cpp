#include "contract.hpp"

#include <cstdlib>
#include <map>

#include <fmt/format.h>

#include "../process/rank.hpp"

namespace muster {

std::vector<std::string> rank_environment(const RankSpec& spec, const JobShape& job) {
  std::map<std::string, std::string> variables = spec.env;
  const auto number = [&](const char* name, int value) { variables[name] = std::to_string(value); };
  number("RANK", spec.rank);
  number("LOCAL_RANK", spec.local_rank);
  number("WORLD_SIZE", job.size);
  number("LOCAL_WORLD_SIZE", job.size);
  number("GROUP_RANK", 0);
  number("GROUP_WORLD_SIZE", 1);
  number("ROLE_RANK", spec.rank);
  number("ROLE_WORLD_SIZE", job.size);
  variables["ROLE_NAME"] = "default";
  variables["MASTER_ADDR"] = "127.0.0.1";
  number("MASTER_PORT", job.port);
  number("TORCHELASTIC_RESTART_COUNT", job.attempt);
  number("TORCHELASTIC_MAX_RESTARTS", job.max_restarts);
  variables["TORCHELASTIC_RUN_ID"] = job.token;
  variables[process::job_variable] = job.token;
  if (job.threads_chosen || std::getenv("OMP_NUM_THREADS") == nullptr)
    variables.emplace("OMP_NUM_THREADS", std::to_string(job.threads));
  std::vector<std::string> all;
  for (const auto& [name, value] : variables)
    all.push_back(fmt::format("{}={}", name, value));
  return all;
}

} // namespace muster
