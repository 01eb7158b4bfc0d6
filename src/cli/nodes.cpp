#include "nodes.hpp"

#include <algorithm>
#include <array>
#include <sstream>
#include <string_view>
#include <utility>

#include <fmt/ranges.h>

#include "units.hpp"

namespace muster::cli {

namespace {

constexpr int most_nodes = 100'000;

/// "2", or "2:2" for torchrun's sake.
int node_count(const Given& given) {
  const auto colon = given.text.find(':');
  if (colon == std::string::npos)
    return whole(given, 1, most_nodes);
  const int least = whole({given.subject, given.text.substr(0, colon)}, 1, most_nodes);
  const int most = whole({given.subject, given.text.substr(colon + 1)}, 1, most_nodes);
  if (least != most)
    throw UsageError(
        fmt::format("{} '{}': elastic ranges are not supported: use a fixed number, and "
                    "--max-restarts or the scheduler's requeue",
                    given.subject,
                    given.text));
  return most;
}

struct Endpoint {
  std::string host;
  std::optional<int> port = {};
};

/// The host, and ":PORT" or nothing; nullopt if `text` is no endpoint.
std::optional<std::pair<std::string, std::string>> split_endpoint(const std::string& text) {
  std::pair<std::string, std::string> parts(text, "");
  auto& [host, rest] = parts;
  if (const auto end = text.find(']'); text.starts_with('[') && end != std::string::npos) {
    host = text.substr(1, end - 1);
    rest = text.substr(end + 1);
  } else if (std::count(text.begin(), text.end(), ':') == 1) { // more of them: an IPv6 address
    host = text.substr(0, text.find(':'));
    rest = text.substr(host.size());
  }
  if (host.empty() || host.find_first_of("/[] \t") != std::string::npos ||
      !(rest.empty() || rest.starts_with(':')))
    return std::nullopt;
  return parts;
}

Endpoint endpoint(const Given& given) {
  const auto parts = split_endpoint(given.text);
  if (!parts)
    throw UsageError(
        fmt::format("{} '{}': write HOST, HOST:PORT or [IPV6]:PORT", given.subject, given.text));
  const auto& [host, rest] = *parts;
  if (rest.empty())
    return {host};
  const std::string subject = fmt::format("{} '{}': the port", given.subject, given.text);
  return {host, whole({subject, rest.substr(1)}, 0, 65535)};
}

std::string address(const Given& given) {
  Endpoint found = endpoint(given);
  if (found.port)
    throw UsageError(
        fmt::format("{} '{}': it takes no port; use --master-port", given.subject, given.text));
  return std::move(found.host);
}

bool is_c10d(const Given& given) {
  if (given.text == "c10d" || given.text == "static")
    return given.text == "c10d";
  throw UsageError(
      fmt::format("{} '{}': this backend is not supported: use static with --master-addr "
                  "and --master-port, or c10d with --rdzv-endpoint",
                  given.subject,
                  given.text));
}

/// The time that nodes have to meet, if the settings "key=value,key=value" say one.
std::optional<std::chrono::milliseconds> time_to_meet(const Given& given) {
  constexpr std::array<std::string_view, 6> times = {"timeout",
                                                     "join_timeout",
                                                     "last_call_timeout",
                                                     "close_timeout",
                                                     "read_timeout",
                                                     "keep_alive_interval"};
  constexpr std::array<std::string_view, 4> others = {
      "keep_alive_max_attempt", "is_host", "store_type", "use_libuv"};
  std::optional<std::chrono::milliseconds> found;
  std::istringstream settings(given.text);
  for (std::string setting; std::getline(settings, setting, ',');) {
    const auto equals = std::min(setting.find('='), setting.size());
    const std::string key = setting.substr(0, equals);
    if (std::find(times.begin(), times.end(), key) != times.end()) {
      const auto time = parse_duration(setting.substr(std::min(equals + 1, setting.size())),
                                       fmt::format("{}: {}", given.subject, key));
      if (key == "timeout" || key == "join_timeout")
        found = time;
    } else if (equals == setting.size() ||
               std::find(others.begin(), others.end(), key) == others.end()) {
      throw UsageError(fmt::format("{} '{}': '{}' is no setting; write KEY=VALUE,... with {}, {}",
                                   given.subject,
                                   given.text,
                                   setting,
                                   fmt::join(times, ", "),
                                   fmt::join(others, ", ")));
    }
  }
  return found;
}

void check_place(Reader& reader, const Nodes& nodes, bool c10d) {
  if (nodes.rank >= nodes.count)
    reader.problem("{}: with --nnodes {} the nodes are numbered from 0 to {}",
                   reader.spell("node-rank"),
                   nodes.count,
                   nodes.count - 1);
  if (nodes.count == 1)
    return;
  const std::string several = reader.spell("nnodes");
  if (nodes.master_address.empty())
    reader.problem("{} needs --master-addr, the host name of node 0 (or --rdzv-endpoint)", several);
  if (nodes.master_port == 0)
    reader.problem("{} needs --master-port, the same on all nodes, such as 29500 (or "
                   "--rdzv-endpoint HOST:PORT)",
                   several);
  if (c10d && !reader.find("node-rank"))
    reader.problem("{} with {} needs --node-rank, from 0 to {}: nodes do not number themselves",
                   several,
                   reader.spell("rdzv-backend"),
                   nodes.count - 1);
}

} // namespace

void read_nodes(Reader& reader, LaunchOptions& launch) {
  Nodes nodes;
  bool standalone = false;
  bool c10d = false;
  const std::size_t problems = reader.problems().size();
  reader.read("nnodes", nodes.count, node_count);
  reader.read(
      "node-rank", nodes.rank, [](const Given& given) { return whole(given, 0, most_nodes); });
  reader.read("master-addr", nodes.master_address, address);
  reader.read(
      "master-port", nodes.master_port, [](const Given& given) { return whole(given, 0, 65535); });
  if (const auto meeting = reader.get("rdzv-endpoint", endpoint)) {
    nodes.master_address = meeting->host;
    nodes.master_port = meeting->port.value_or(nodes.master_port);
  }
  reader.read("rdzv-backend", c10d, is_c10d);
  reader.read("rdzv-id", launch.run_id);
  if (const auto time = reader.get("rdzv-conf", time_to_meet); time && *time)
    launch.start_timeout = **time;
  reader.read("standalone", standalone);
  if (standalone && nodes.count > 1)
    reader.problem("{} with {}: one means this host alone, the other several; leave one out",
                   reader.find("standalone")->subject,
                   reader.spell("nnodes"));
  else if (!standalone && reader.problems().size() == problems)
    check_place(reader, nodes, c10d);
  if (standalone)
    launch.run_id.clear();
  else
    launch.nodes = nodes;
}

} // namespace muster::cli
