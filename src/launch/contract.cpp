#include <muster/cluster/environment.hpp>
#include <muster/launch/contract.hpp>

#include <cstdlib>
#include <map>

#include <fmt/format.h>

#include "../process/gpus.hpp"
#include "../process/rank.hpp"

namespace muster {

std::string master_address(const Nodes& nodes) {
  return nodes.master_address.empty() ? "127.0.0.1" : nodes.master_address;
}

std::vector<std::string> rank_environment(const RankSpec& spec,
                                          const LaunchOptions& options,
                                          const JobShape& job,
                                          const std::string& error_file) {
  std::map<std::string, std::string> variables = spec.env;
  const auto number = [&](const char* name, int value) { variables[name] = std::to_string(value); };
  const Nodes& nodes = options.nodes;
  number("RANK", spec.rank);
  number("LOCAL_RANK", options.virtual_local_rank ? 0 : spec.local_rank);
  number("WORLD_SIZE", job.size(nodes));
  number("LOCAL_WORLD_SIZE", job.local_size);
  number("GROUP_RANK", nodes.rank);
  number("GROUP_WORLD_SIZE", nodes.count);
  number("ROLE_RANK", spec.rank);
  number("ROLE_WORLD_SIZE", job.size(nodes));
  variables["ROLE_NAME"] = options.role;
  variables["MASTER_ADDR"] = master_address(nodes);
  number("MASTER_PORT", job.port);
  number("TORCHELASTIC_RESTART_COUNT", job.attempt);
  number("TORCHELASTIC_MAX_RESTARTS", options.max_restarts);
  variables["TORCHELASTIC_RUN_ID"] = options.run_id.empty() ? job.token : options.run_id;
  variables["TORCHELASTIC_USE_AGENT_STORE"] = "False"; // rank 0 serves it, if anybody wants one
  variables["TORCHELASTIC_ERROR_FILE"] = error_file;
  variables[process::job_variable] = job.token;
  if (std::getenv("TORCH_NCCL_ASYNC_ERROR_HANDLING") == nullptr)
    variables.emplace("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1");
  if (job.threads_chosen || std::getenv("OMP_NUM_THREADS") == nullptr)
    variables.emplace("OMP_NUM_THREADS", std::to_string(job.threads));
  if (options.virtual_local_rank)
    variables["CUDA_VISIBLE_DEVICES"] = process::gpu_for(spec.local_rank, EnvSnapshot::current());
  std::vector<std::string> all;
  for (const auto& [name, value] : variables)
    all.push_back(fmt::format("{}={}", name, value));
  return all;
}

} // namespace muster
