#include "hint.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <csignal>
#include <fstream>
#include <initializer_list>
#include <memory>
#include <optional>
#include <sstream>
#include <string_view>
#include <vector>

#include <dirent.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <fmt/format.h>

namespace muster::process {

namespace {

/// inodes of the sockets whose local port is `port`; listening ones if there are any.
std::vector<std::string> sockets_on(int port) {
  std::vector<std::string> listening;
  std::vector<std::string> others;
  for (const char* table : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    std::ifstream file(table);
    std::string line;
    std::getline(file, line);
    while (std::getline(file, line)) {
      std::istringstream fields(line);
      std::string skipped;
      std::string local;
      std::string state;
      std::string inode;
      fields >> skipped >> local >> skipped >> state;
      for (int i = 4; i < 10; ++i)
        fields >> inode;
      if (inode != "0" && local.ends_with(fmt::format(":{:04X}", port)))
        (state == "0A" ? listening : others).push_back("socket:[" + inode + "]");
    }
  }
  return listening.empty() ? others : listening;
}

bool has_open(const std::string& pid, const std::vector<std::string>& files) {
  const std::string folder = "/proc/" + pid + "/fd";
  const std::unique_ptr<DIR, int (*)(DIR*)> list(::opendir(folder.c_str()), &::closedir);
  while (const dirent* entry = list ? ::readdir(list.get()) : nullptr) {
    std::array<char, 64> target{};
    const ssize_t size =
        ::readlinkat(::dirfd(list.get()), entry->d_name, target.data(), target.size());
    if (size > 0 &&
        std::find(files.begin(),
                  files.end(),
                  std::string_view(target.data(), static_cast<std::size_t>(size))) != files.end())
      return true;
  }
  return false;
}

/// The last line of the rank's message or output that holds one of `needles`, or "".
std::string last_line_with(const RankReport& rank,
                           std::initializer_list<std::string_view> needles) {
  const std::string text = rank.exception_type + ": " + rank.message + "\n" + rank.log_tail;
  std::size_t found = std::string::npos;
  for (const std::string_view needle : needles) {
    const std::size_t at = text.rfind(needle);
    if (at != std::string::npos && (found == std::string::npos || at > found))
      found = at;
  }
  if (found == std::string::npos)
    return "";
  const std::size_t before = text.rfind('\n', found);
  const std::size_t begin = before == std::string::npos ? 0 : before + 1;
  return text.substr(begin, text.find('\n', found) - begin);
}

/// What stands between `before` and `after` in `line`, or "".
std::string between(const std::string& line, std::string_view before, std::string_view after) {
  const std::size_t at = line.find(before);
  if (at == std::string::npos)
    return "";
  const std::size_t begin = at + before.size();
  const std::size_t end = line.find(after, begin);
  return end == std::string::npos ? "" : line.substr(begin, end - begin);
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// The port that begins at `at`.
std::optional<int> port_at(const std::string& line, std::size_t at) {
  int port = 0;
  const char* const end = line.data() + line.size();
  const auto [next, error] = std::from_chars(line.data() + std::min(at, line.size()), end, port);
  if (error != std::errc() || port < 1 || port > 65535)
    return std::nullopt;
  return port;
}

/// True if the text before `colon` is an address: [::], 10.0.0.1, *, localhost.
bool follows_address(const std::string& line, std::size_t colon) {
  const std::string_view before(line.data(), colon);
  if (before.ends_with(']') || before.ends_with('*') || before.ends_with("localhost"))
    return true;
  std::size_t begin = colon;
  while (begin > 0 && (is_digit(line[begin - 1]) || line[begin - 1] == '.'))
    --begin;
  return std::count(line.begin() + static_cast<std::ptrdiff_t>(begin),
                    line.begin() + static_cast<std::ptrdiff_t>(colon),
                    '.') == 3;
}

/// The port that a line on an address in use speaks of: "port: 29500", "[::]:29500".
std::optional<int> port_in(const std::string& line) {
  std::string lower = line;
  std::transform(lower.begin(), lower.end(), lower.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  for (std::size_t at = lower.find("port"); at != std::string::npos;
       at = lower.find("port", at + 1))
    if (const auto port = port_at(line, lower.find_first_not_of(":= ", at + 4)))
      return port;
  for (std::size_t at = line.find(':'); at != std::string::npos; at = line.find(':', at + 1))
    if (const auto port = port_at(line, at + 1); port && follows_address(line, at))
      return port;
  return std::nullopt;
}

bool ended_by(const RankReport& rank, int signal) { return rank.status.signal() == signal; }

std::string out_of_memory(const RankReport& rank, const HintFacts& facts) {
  const bool child = rank.status.code() == 128 + SIGKILL;
  if (!facts.oom_killed || (!ended_by(rank, SIGKILL) && !child))
    return "";
  return fmt::format("probably the OOM killer{}{}",
                     child ? ", which killed a process that this rank ran" : "",
                     facts.memory_limit.empty() ? "" : fmt::format(" ({})", facts.memory_limit));
}

std::string killed(const RankReport& rank, const HintFacts&) {
  if (!ended_by(rank, SIGKILL))
    return "";
  return "sent by somebody else: an administrator, a scheduler or the OOM killer of another cgroup";
}

std::string shared_memory(const RankReport& rank, const HintFacts& facts) {
  if (!ended_by(rank, SIGBUS) || facts.shm_bytes == 0 ||
      facts.shm_free_bytes > facts.shm_bytes / 100)
    return "";
  return fmt::format("probably since /dev/shm is full ({} MiB); enlarge it (docker run --shm-size)",
                     facts.shm_bytes / (1024 * 1024));
}

std::string signals(const RankReport& rank, const HintFacts&) {
  struct Row {
    int signal;
    const char* hint;
  };
  constexpr std::array rows{
      Row{SIGILL, "probably built for another CPU (-march), which has instructions this one lacks"},
      Row{SIGXCPU, "over the limit on CPU time (ulimit -t)"},
      Row{SIGXFSZ, "over the limit on the size of files (ulimit -f)"},
      Row{SIGSYS, "a seccomp filter, such as a container's, forbids one of its system calls"},
  };
  for (const Row& row : rows)
    if (ended_by(rank, row.signal))
      return row.hint;
  return "";
}

std::string library(const RankReport& rank, const HintFacts&) {
  constexpr std::string_view loader = "error while loading shared libraries: ";
  const std::string line = last_line_with(rank, {loader});
  if (rank.status.code() != 127 || line.empty())
    return "";
  const std::string name = between(line, loader, ":");
  if (line.find("cannot open shared object file") == std::string::npos)
    return fmt::format("the dynamic loader refused {}",
                       line.substr(line.find(loader) + loader.size()));
  return fmt::format(
      "the library {} was not found; install it, or add its folder to LD_LIBRARY_PATH", name);
}

std::string python_module(const RankReport& rank, const HintFacts&) {
  const std::string line = last_line_with(rank, {"ModuleNotFoundError: No module named '"});
  const std::string name = between(line, "No module named '", "'");
  if (name.empty())
    return "";
  return fmt::format("this Python has no module {}; install it, or choose another Python by "
                     "PYTHON_EXEC",
                     name);
}

std::string gpu_memory(const RankReport& rank, const HintFacts&) {
  const std::string line = last_line_with(rank,
                                          {"CUDA error: out of memory",
                                           "CUDA out of memory",
                                           "HIP out of memory",
                                           "torch.OutOfMemoryError",
                                           "torch.cuda.OutOfMemoryError",
                                           "c10::OutOfMemoryError"});
  return line.empty() ? "" : "the GPU's memory is full; nvidia-smi shows who uses it";
}

std::string port_in_use(const RankReport& rank, const HintFacts& facts) {
  const std::string line =
      last_line_with(rank, {"Address already in use", "address already in use", "EADDRINUSE"});
  if (line.empty())
    return "";
  const auto port = port_in(line);
  if (!port)
    return "another process uses the port that it wanted";
  const std::string holder = facts.holder_of_port(*port);
  return fmt::format("port {} is in use{}", *port, holder.empty() ? "" : " by " + holder);
}

using Rule = std::string (*)(const RankReport&, const HintFacts&);

constexpr std::array<Rule, 8> rules{
    out_of_memory, killed, shared_memory, library, gpu_memory, port_in_use, python_module, signals};

std::string base_name(const std::string& path) { return path.substr(path.rfind('/') + 1); }

/// What %`specifier` of core_pattern becomes; "*" if that is unknown.
std::string expanded(char specifier, const RankReport& rank, const HintFacts& facts) {
  constexpr std::size_t comm_bytes = 15;
  std::string program = facts.program;
  switch (specifier) {
  case '%':
    return "%";
  case 'p':
    return std::to_string(rank.pid);
  case 's':
    return std::to_string(rank.status.signal().value_or(0));
  case 'e':
    return program.empty() ? "*" : base_name(program).substr(0, comm_bytes);
  case 'E':
    std::replace(program.begin(), program.end(), '/', '!');
    return program.starts_with('!') ? program : "*";
  case 'h':
    return rank.host.empty() ? "*" : rank.host;
  case 'u':
    return std::to_string(::getuid());
  case 'g':
    return std::to_string(::getgid());
  default:
    return "*";
  }
}

std::string core_file(const RankReport& rank, const HintFacts& facts) {
  const std::string& pattern = facts.core_pattern;
  std::string path;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] != '%')
      path += pattern[i];
    else if (++i < pattern.size())
      path += expanded(pattern[i], rank, facts);
  }
  if (facts.core_uses_pid && pattern.find("%p") == std::string::npos)
    path += fmt::format(".{}", rank.pid);
  if (!path.starts_with('/') && !facts.cwd.empty())
    path = facts.cwd + "/" + path;
  return path;
}

std::string core_hint(const RankReport& rank, const HintFacts& facts) {
  const std::string& pattern = facts.core_pattern;
  if (!rank.status.core_dumped() || pattern.empty())
    return "";
  if (pattern[0] == '@')
    return fmt::format("core dump went to the socket {}", pattern.substr(1));
  if (pattern[0] != '|')
    return fmt::format("core file {}", core_file(rank, facts));
  std::string program;
  std::istringstream(pattern.substr(1)) >> program;
  if (base_name(program) == "systemd-coredump")
    return fmt::format("core dump: coredumpctl info {}", rank.pid);
  if (base_name(program) == "apport")
    return "core dump went to apport, see /var/crash";
  return fmt::format("core dump went to {}", program);
}

} // namespace

std::string holder_of_port(int port) {
  const std::vector<std::string> sockets = sockets_on(port);
  if (sockets.empty())
    return "";
  const std::unique_ptr<DIR, int (*)(DIR*)> list(::opendir("/proc"), &::closedir);
  while (const dirent* entry = list ? ::readdir(list.get()) : nullptr) {
    const std::string pid = entry->d_name;
    if (!is_digit(pid[0]) || !has_open(pid, sockets))
      continue;
    std::string name;
    std::getline(std::ifstream("/proc/" + pid + "/comm"), name);
    return fmt::format("pid {} ({})", pid, name);
  }
  return "";
}

HintFacts facts_of_this_host() {
  HintFacts facts;
  std::getline(std::ifstream("/proc/sys/kernel/core_pattern"), facts.core_pattern);
  int uses_pid = 0;
  std::ifstream("/proc/sys/kernel/core_uses_pid") >> uses_pid;
  facts.core_uses_pid = uses_pid != 0;
  struct statvfs shm {};
  if (::statvfs("/dev/shm", &shm) == 0) {
    facts.shm_bytes = shm.f_blocks * shm.f_frsize;
    facts.shm_free_bytes = shm.f_bavail * shm.f_frsize;
  }
  return facts;
}

std::string hint_for(const RankReport& rank, const HintFacts& facts) {
  if (rank.succeeded() || facts.killed_by_us)
    return "";
  std::string hint;
  for (const Rule rule : rules)
    if (hint = rule(rank, facts); !hint.empty())
      break;
  const std::string core = core_hint(rank, facts);
  return hint + (hint.empty() || core.empty() ? "" : "; ") + core;
}

} // namespace muster::process
