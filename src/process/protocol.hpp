#pragma once

#include <muster/launch/task.hpp>

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

// What the launcher and its ranks say to each other. Both are the same build, or the rank's build
// id check fails first.
namespace muster::process {

enum class Kind : std::uint8_t {
  assignment,    // launcher to rank, the first message: what to do
  store_request, // rank to launcher
  store_reply,   // launcher to rank
  failure,       // rank to launcher: an exception ended it
  peer_lost,     // launcher to rank: what became of another rank; store calls are over
  crash,         // rank to launcher: a fatal signal ends it; a CrashRecord and its memory map
};

/// What a rank is to the program it runs in.
enum class Part : std::uint8_t {
  function, // init does its work and ends it
  launch,   // main goes on to the launch of the same function, which ends it
  program,  // a program of its own; it launches inline, if at all
};

/// The launcher's state at the launch, for ranks that a fork server makes.
struct ProcessState {
  std::vector<std::string> environment = {}; // NAME=value
  std::uint32_t umask = 0;
  int niceness = 0;
  std::vector<std::array<std::uint64_t, 2>> limits = {}; // soft and hard, by resource number
  std::vector<int> cpus = {};
};

/// The same for every rank of a job.
struct JobPart {
  Part part = {};
  Symbol thunk = {};
  Symbol function = {};
  int size = 1;
  int local_size = 1;
  int node_rank = 0;
  int node_count = 1;
  std::string master_address = {}; // with several nodes, where the launcher serves no store
  int master_port = 0;
  int attempt = 0;
  int threads = 0;
  std::int64_t group_timeout_ms = 0;
  ProcessState state = {};
};

struct Assignment {
  JobPart job = {};
  RankSpec spec = {};
  std::vector<std::string> environment = {}; // NAME=value, what this rank adds
};

struct Failure {
  std::string type = {}; // demangled
  std::string message = {};
  bool peer_lost = false; // the error says that a peer went away: an echo of another failure
};

enum class StoreOp : std::uint8_t {
  set,
  get,
  add,
  compare_set,
  append,
  wait,
  check,
  erase,
  size,
  keys,
  push,
  pop,
  queue_size,
};

struct StoreRequest {
  std::uint64_t id = 0;
  StoreOp op{};
  std::vector<std::string> keys = {};
  std::vector<std::string> values = {};
  std::int64_t number = 0; // amount to add, or time limit in milliseconds
};

enum class StoreStatus : std::uint8_t { ok, timeout, closed };

struct StoreReply {
  std::uint64_t id = 0;
  StoreStatus status{};
  std::vector<std::string> values = {};
  std::int64_t number = 0;
};

} // namespace muster::process
