#include "flags.hpp"

#include <algorithm>
#include <array>
#include <cctype>

namespace muster::cli {

namespace {

constexpr auto table = std::to_array<Flag>({
    {.name = "nproc-per-node",
     .group = Group::ranks,
     .value = "N",
     .help = "ranks on this host: a number, auto, cpu or gpu",
     .letter = 'n',
     .pet = true,
     .candidates = "auto cpu gpu"},
    {.name = "module",
     .group = Group::ranks,
     .help = "PROGRAM is a Python module",
     .letter = 'm',
     .pet = true},
    {.name = "no-python",
     .group = Group::ranks,
     .help = "PROGRAM is executed as it is, whatever its name",
     .pet = true},
    {.name = "threads",
     .group = Group::ranks,
     .value = "N",
     .help = "OMP_NUM_THREADS; default: usable CPUs / ranks"},
    {.name = "numa-binding",
     .group = Group::ranks,
     .value = "HOW",
     .help = "none, node, socket, core-complex or exclusive",
     .candidates = "none node socket core-complex exclusive"},
    {.name = "virtual-local-rank",
     .group = Group::ranks,
     .help = "each rank sees LOCAL_RANK=0 and one GPU",
     .pet = true},
    {.name = "role",
     .group = Group::ranks,
     .value = "NAME",
     .help = "ROLE_NAME of the ranks; default: default",
     .pet = true},
    {.name = "stdin",
     .group = Group::ranks,
     .value = "RANKS",
     .help = "who reads standard input: 0, 0-3,8, all; none",
     .candidates = "none 0 all"},
    {.name = "wrap",
     .group = Group::ranks,
     .value = "COMMAND",
     .help = "put before PROGRAM: 'valgrind --leak-check=full'"},
    {.name = "wrap-ranks",
     .group = Group::ranks,
     .value = "RANKS",
     .help = "only for these local ranks",
     .candidates = "none 0 all"},

    {.name = "log-dir",
     .group = Group::output,
     .value = "DIR",
     .help = "DIR/attempt_N/RANK/stdout.log; /dev/null: none",
     .pet = true,
     .candidates = "<directory>"},
    {.name = "redirects",
     .group = Group::output,
     .value = "MAP",
     .help = "to files only: 1 stdout, 2 stderr, 3 both; 0-7:1",
     .letter = 'r',
     .pet = true,
     .candidates = "0 1 2 3"},
    {.name = "tee",
     .group = Group::output,
     .value = "MAP",
     .help = "to files and the console, written likewise",
     .letter = 't',
     .pet = true,
     .candidates = "0 1 2 3"},
    {.name = "local-ranks-filter",
     .group = Group::output,
     .value = "RANKS",
     .help = "only these are shown on the console",
     .pet = true,
     .candidates = "none 0 all"},
    {.name = "prefix",
     .group = Group::output,
     .value = "TEMPLATE",
     .help = "begins lines: ${rank} ${local_rank} ${hostname}",
     .variable = "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE"},
    {.name = "log-line-prefix-template",
     .group = Group::output,
     .value = "TEMPLATE",
     .same_as = "prefix"},
    {.name = "color",
     .group = Group::output,
     .value = "WHEN",
     .help = "prefixes in colour: auto, always or never",
     .candidates = "auto always never"},
    {.name = "log-limit",
     .group = Group::output,
     .value = "SIZE",
     .help = "files begin anew at SIZE (64M, 1G), one is kept"},
    {.name = "log-overflow",
     .group = Group::output,
     .value = "HOW",
     .help = "console not read: ranks wait, or lines drop",
     .candidates = "wait drop"},
    {.name = "log-tail",
     .group = Group::output,
     .value = "N",
     .help = "lines of a failed rank in the report; default 20"},

    {.name = "report",
     .group = Group::failure,
     .value = "FILE",
     .help = "what became of every rank, as JSON",
     .candidates = "<file>"},
    {.name = "exit-code",
     .group = Group::failure,
     .value = "RULE",
     .help = "of the first failure, max of all, or torchrun: 1",
     .candidates = "first max torchrun"},
    {.name = "max-restarts",
     .group = Group::failure,
     .value = "N",
     .help = "start again after failures; default 0",
     .pet = true},
    {.name = "ready-after",
     .group = Group::failure,
     .value = "TIME",
     .help = "only if PROGRAM has lived so long; default 5s"},
    {.name = "shutdown-timeout",
     .group = Group::failure,
     .value = "TIME",
     .help = "from TERM to KILL (90, 1.5m, 500ms); default 10s",
     .pet = true,
     .variable = "TORCH_ELASTIC_SHUTDOWN_TIMEOUT"},
    {.name = "timeout",
     .group = Group::failure,
     .value = "TIME",
     .help = "ends the job after TIME"},
    {.name = "hang-timeout",
     .group = Group::failure,
     .value = "TIME",
     .help = "ends the job if no rank makes progress for TIME"},
    {.name = "signals-to-handle",
     .group = Group::failure,
     .value = "SIGNALS",
     .help = "stop the job; default TERM,INT,HUP,QUIT",
     .pet = true,
     .candidates = "TERM INT HUP QUIT"},
    {.name = "forward",
     .group = Group::failure,
     .value = "SIGNALS",
     .help = "passed on to ranks; default USR1,USR2; none",
     .candidates = "USR1 USR2 HUP WINCH none"},

    {.name = "nnodes",
     .group = Group::nodes,
     .value = "N",
     .help = "hosts that do this job, each by its own command",
     .pet = true},
    {.name = "node-rank",
     .group = Group::nodes,
     .value = "K",
     .help = "which of them this is, from 0",
     .pet = true},
    {.name = "master-addr",
     .group = Group::nodes,
     .value = "HOST",
     .help = "of node 0; default 127.0.0.1",
     .pet = true},
    {.name = "master-port",
     .group = Group::nodes,
     .value = "PORT",
     .help = "on node 0; default: one that is free",
     .pet = true},
    {.name = "rdzv-endpoint",
     .group = Group::nodes,
     .value = "HOST:PORT",
     .help = "both in one; wins over them",
     .pet = true},
    {.name = "rdzv-backend",
     .group = Group::nodes,
     .value = "NAME",
     .help = "static or c10d: the same here",
     .pet = true,
     .candidates = "static c10d"},
    {.name = "rdzv-id",
     .group = Group::nodes,
     .value = "ID",
     .help = "TORCHELASTIC_RUN_ID; default: a random one",
     .pet = true},
    {.name = "rdzv-conf",
     .group = Group::nodes,
     .value = "KEY=VALUE,...",
     .help = "timeout and join_timeout: to start, in seconds",
     .pet = true},
    {.name = "standalone",
     .group = Group::nodes,
     .help = "this host alone, whatever else is said above",
     .pet = true},
    {.name = "cluster",
     .group = Group::nodes,
     .value = "NAME",
     .help = "what tells of the nodes: local, the flags above",
     .candidates = "local"},

    {.name = "dry-run",
     .group = Group::other,
     .help = "shows what each rank would execute, and ends"},
    {.name = "print-env",
     .group = Group::other,
     .help = "shows the variables that each rank would get"},
    {.name = "help", .group = Group::other, .help = "shows this", .letter = 'h'},
    {.name = "version", .group = Group::other, .help = "shows the version"},

    {.name = "local-addr", .group = Group::no_effect, .value = "HOST", .pet = true},
    {.name = "monitor-interval", .group = Group::no_effect, .value = "SECONDS", .pet = true},
    {.name = "start-method",
     .group = Group::no_effect,
     .value = "HOW",
     .pet = true,
     .candidates = "spawn fork forkserver"},
    {.name = "event-log-handler",
     .group = Group::no_effect,
     .value = "NAME",
     .pet = true,
     .candidates = "null"},

    {.name = "run-path", .group = Group::refused, .pet = true},
    {.name = "logs-specs", .group = Group::refused, .value = "NAME"},
    {.name = "duplicate-stdout-filters", .group = Group::refused, .value = "WORDS", .pet = true},
    {.name = "duplicate-stderr-filters", .group = Group::refused, .value = "WORDS", .pet = true},
    {.name = "print-completion", .group = Group::refused, .value = "SHELL"},
});

char dashed(char c) noexcept { return c == '_' ? '-' : c; }

} // namespace

std::span<const Flag> flags() noexcept { return table; }

const Flag* find_flag(std::string_view spelling) noexcept {
  for (const Flag& flag : table) {
    const std::string_view name = flag.name;
    const bool is_long =
        spelling.starts_with("--") && std::equal(name.begin(),
                                                 name.end(),
                                                 spelling.begin() + 2,
                                                 spelling.end(),
                                                 [](char a, char b) { return a == dashed(b); });
    const bool is_short = flag.letter != 0 && spelling.size() == 2 && spelling[0] == '-' &&
                          spelling[1] == flag.letter;
    if (is_long || is_short)
      return &flag;
  }
  return nullptr;
}

std::string to_string(const Flag& flag) { return std::string("--") + flag.name; }

std::string with_underscores(const Flag& flag) {
  std::string name = flag.name;
  std::replace(name.begin(), name.end(), '-', '_');
  return "--" + name;
}

std::string pet_variable(const Flag& flag) {
  std::string name = "PET_" + with_underscores(flag).substr(2);
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) {
    return static_cast<char>(std::toupper(c));
  });
  return name;
}

} // namespace muster::cli
