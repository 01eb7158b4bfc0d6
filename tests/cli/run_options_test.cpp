#include <muster/launch/error.hpp>

#include <algorithm>
#include <csignal>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "catch.hpp"
#include "cli/flags.hpp"
#include "cli/help.hpp"
#include "cli/run_options.hpp"
#include "cli/signals.hpp"
#include "cli/units.hpp"
#include "cli/words.hpp"

using namespace muster;
using namespace std::chrono_literals;
using cli::Flag;
using cli::RunOptions;

namespace {

using Line = std::vector<std::string>;

RunOptions parse(Line options, const EnvSnapshot& environment = {}) {
  options.emplace_back("program");
  return cli::parse_run(options, environment);
}

/// The problems of a whole line; empty if there are none.
Line problems(const Line& line, const EnvSnapshot& environment = {}) {
  Line found;
  try {
    cli::parse_run(line, environment);
  } catch (const UsageError& error) {
    std::istringstream lines(error.what());
    for (std::string text; std::getline(lines, text);)
      found.push_back(text);
  }
  return found;
}

std::string problem(Line options, const EnvSnapshot& environment = {}) {
  options.emplace_back("program");
  const Line found = problems(options, environment);
  if (found.size() != 1)
    return "there are " + std::to_string(found.size()) + " problems";
  return found.front();
}

EnvSnapshot with(const std::string& name, const std::string& value) { return {{{name, value}}}; }

struct Values {
  const char* good;
  const char* bad; ///< nullptr: there are none
};

/// For each flag that takes a value, one that is right and one that is wrong.
const std::map<std::string, Values> examples = {
    {"nproc-per-node", {"4", "0"}},
    {"threads", {"2", "0"}},
    {"numa-binding", {"core-complex", "core_complex"}},
    {"role", {"trainer", ""}},
    {"stdin", {"0-1", "first"}},
    {"wrap", {"valgrind -q", "a 'b"}},
    {"wrap-ranks", {"0", "-1"}},
    {"log-dir", {"/tmp/logs", ""}},
    {"redirects", {"0:3,10-12:1", "4"}},
    {"tee", {"3", "0:3,"}},
    {"local-ranks-filter", {"0,2-3", "3-2"}},
    {"prefix", {"", nullptr}},
    {"log-line-prefix-template", {"[${rank}]", nullptr}},
    {"color", {"never", "no"}},
    {"log-limit", {"64M", "64X"}},
    {"log-overflow", {"drop", "lose"}},
    {"log-tail", {"0", "-1"}},
    {"report", {"report.json", ""}},
    {"exit-code", {"max", "last"}},
    {"max-restarts", {"3", "many"}},
    {"ready-after", {"0", "-1"}},
    {"shutdown-timeout", {"1.5", "-0.1"}},
    {"timeout", {"2h", "0"}},
    {"hang-timeout", {"90s", "1y"}},
    {"signals-to-handle", {"SIGTERM,2", "TERM,KILL"}},
    {"forward", {"none", "USR3"}},
    {"nnodes", {"1:1", "1:4"}},
    {"node-rank", {"0", "-1"}},
    {"master-addr", {"node0", "node0:29500"}},
    {"master-port", {"29500", "65536"}},
    {"rdzv-endpoint", {"[::1]:29400", "tcp://node0:1"}},
    {"rdzv-backend", {"c10d", "etcd-v2"}},
    {"rdzv-id", {"17", ""}},
    {"rdzv-conf", {"timeout=60,is_host=1", "time=60"}},
    {"cluster", {"local", "slurmx"}},
    {"local-addr", {"node1", ""}},
    {"monitor-interval", {"0.1", "often"}},
    {"start-method", {"spawn", "clone"}},
    {"event-log-handler", {"null", "console"}},
};

bool takes_example(const Flag& flag) { return flag.value && flag.group != cli::Group::refused; }

/// Some values mean something only together with another flag.
Line companions(const Flag& flag) {
  return flag.name == std::string("wrap-ranks") ? Line{"--wrap", "time"} : Line{};
}

Line operator+(Line left, const Line& right) {
  left.insert(left.end(), right.begin(), right.end());
  return left;
}

} // namespace

TEST_CASE("a bare program has the defaults", "[run_options]") {
  const RunOptions options = parse({});
  CHECK(options.command == Line{"program"});
  CHECK_FALSE(options.nprocs);
  CHECK(options.nproc_word.empty());
  CHECK(options.launch.grace == 10s);
  CHECK(options.launch.nodes.count == 1);
  CHECK(options.launch.stdin_ranks.empty());
  CHECK(options.wrap_ranks.contains(4000));
  REQUIRE(options.launch.logs);
  CHECK_FALSE(options.launch.logs->prefix);
  CHECK(options.launch.logs->console.contains(4000));
  CHECK(options.launch.stop_signals == std::vector{SIGINT, SIGTERM, SIGHUP, SIGQUIT});
  CHECK(options.launch.forward == std::vector{SIGUSR1, SIGUSR2});
}

TEST_CASE("every flag has both spellings and both ways to write its value", "[run_options]") {
  for (const Flag& flag : cli::flags()) {
    const std::string dashes = to_string(flag);
    const std::string underscores = with_underscores(flag);
    INFO(dashes);
    if (!flag.value) {
      const auto values = cli::take_apart({dashes, "x"}).values;
      CHECK(values == std::map<std::string, std::string>{{flag.name, "true"}});
      CHECK(cli::take_apart({underscores, "x"}).values == values);
      continue;
    }
    const std::map<std::string, std::string> values{{flag.name, "v=1"}};
    CHECK(cli::take_apart({dashes, "v=1", "x"}).values == values);
    CHECK(cli::take_apart({dashes + "=v=1", "x"}).values == values);
    CHECK(cli::take_apart({underscores, "v=1", "x"}).values == values);
    CHECK(cli::take_apart({underscores + "=v=1", "x"}).values == values);
    CHECK(cli::take_apart({dashes + "=", "x"}).values.at(flag.name).empty());
    CHECK(cli::take_apart({dashes, "", "x"}).values.at(flag.name).empty());
  }
}

TEST_CASE("every flag takes a right value and names a wrong one", "[run_options]") {
  for (const Flag& flag : cli::flags()) {
    if (!takes_example(flag))
      continue;
    INFO(flag.name);
    REQUIRE(examples.count(flag.name) == 1);
    const Values& values = examples.at(flag.name);
    CHECK(problems(companions(flag) + Line{to_string(flag), values.good, "x"}).empty());
    if (!values.bad)
      continue;
    const std::string found = problem(companions(flag) + Line{to_string(flag), values.bad});
    CHECK_THAT(found, Catch::Contains(to_string(flag)));
    CHECK_THAT(found, Catch::Contains(values.bad));
  }
}

TEST_CASE("torchrun's flags are read from their PET_ variables", "[run_options]") {
  for (const Flag& flag : cli::flags()) {
    const std::string variable = pet_variable(flag);
    INFO(variable);
    if (!flag.pet || flag.group == cli::Group::refused)
      continue;
    if (!flag.value) {
      CHECK(problem({}, with(variable, "maybe")) ==
            variable + " 'maybe': it must be 1, true, 0 or false");
      CHECK(problems({"x"}, with(variable, "1")).empty());
      CHECK(problems({"x"}, with(variable, "false")).empty());
      continue;
    }
    const Values& values = examples.at(flag.name);
    CHECK(problems({"x"}, with(variable, values.good)).empty());
    CHECK(problems({"x"}, with(variable, "")).empty());
    if (const std::string bad = values.bad; !bad.empty())
      CHECK_THAT(problem({}, with(variable, bad)), Catch::Contains(variable));
  }
  CHECK(parse({}, with("PET_NPROC_PER_NODE", "8")).nprocs == 8);
  CHECK(parse({}, with("PET_NO_PYTHON", "1")).no_python);
  CHECK(parse({}, with("PET_MODULE", "True")).module);
}

TEST_CASE("the command line wins over variables", "[run_options]") {
  CHECK(parse({"--nproc-per-node=2"}, with("PET_NPROC_PER_NODE", "8")).nprocs == 2);
  CHECK(parse({"--nproc-per-node=2"}, with("PET_NPROC_PER_NODE", "no")).nprocs == 2);
  CHECK_FALSE(parse({"--no-python=0"}, with("PET_NO_PYTHON", "1")).no_python);
  const std::string grace = "TORCH_ELASTIC_SHUTDOWN_TIMEOUT";
  CHECK(parse({}, with(grace, "2.5")).launch.grace == 2500ms);
  CHECK(parse({}, {{{grace, "2"}, {"PET_SHUTDOWN_TIMEOUT", "3"}}}).launch.grace == 3s);
  CHECK(parse({"--shutdown-timeout", "4"}, with(grace, "2")).launch.grace == 4s);
  CHECK_THAT(problem({}, with(grace, "-1")), Catch::StartsWith(grace + " '-1': "));
  const std::string prefix = "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE";
  CHECK(parse({}, with(prefix, "${rank}: ")).launch.logs->prefix == "${rank}: ");
  CHECK(parse({"--prefix="}, with(prefix, "${rank}: ")).launch.logs->prefix == "");
  CHECK(parse({"--log-line-prefix-template", "a"}, with(prefix, "b")).launch.logs->prefix == "a");
}

TEST_CASE("of a flag that is given twice the last counts", "[run_options]") {
  CHECK(parse({"--nproc-per-node", "2", "--nproc_per_node=3"}).nprocs == 3);
  CHECK(parse({"--tee=x", "-t", "1"}).launch.logs->tee.of(0) == Streams::out);
  CHECK_FALSE(parse({"-m", "--module=0"}).module);
}

TEST_CASE("what comes after the program is the program's", "[run_options]") {
  const Line tail = {"train",
                     "--r=16",
                     "--mo",
                     "0.9",
                     "--log",
                     "x",
                     "--help",
                     "--",
                     "-t",
                     "",
                     "--tee",
                     "9",
                     "--x=",
                     "-",
                     "--version",
                     "[a,b]"};
  CHECK(cli::parse_run(Line{"-t", "3"} + tail, {}).command == tail);
  CHECK(cli::parse_run(Line{"-t", "3", "--"} + tail, {}).command == tail);
  CHECK(cli::parse_run(Line{"--prefix=", "--"} + tail, {}).command == tail);
  CHECK(cli::parse_run({"-m", "package.module", "-m"}, {}).command == Line{"package.module", "-m"});
  CHECK(cli::parse_run({"--", "--odd", "--"}, {}).command == Line{"--odd", "--"});
  CHECK(cli::parse_run({"--", "--", "x"}, {}).command == Line{"--", "x"});
  CHECK(cli::parse_run({"-", "x"}, {}).command == Line{"-", "x"});
}

TEST_CASE("the short flags are torchrun's", "[run_options]") {
  CHECK(parse({"-r", "3"}).launch.logs->redirects.of(5) == Streams::both);
  CHECK(parse({"-r3"}).launch.logs->redirects.of(5) == Streams::both);
  CHECK(parse({"-r=3"}).launch.logs->redirects.of(5) == Streams::both);
  CHECK(parse({"-t0:2"}).launch.logs->tee.of(0) == Streams::err);
  CHECK(parse({"-m"}).module);
  CHECK(cli::parse_run({"-h"}, {}).help);
}

TEST_CASE("help and version need no program and no sense", "[run_options]") {
  CHECK(cli::parse_run({"--help"}, {}).help);
  CHECK(cli::parse_run({"--nnodes", "0", "--nonsense", "-h"}, {}).help);
  CHECK(cli::parse_run({"--version"}, with("PET_TEE", "x")).version);
}

TEST_CASE("flags are never abbreviated", "[run_options]") {
  CHECK(problem({"--nproc=2"}) == "--nproc: flags are not abbreviated: write --nproc-per-node");
  CHECK(problem({"--log"}) ==
        "--log: flags are not abbreviated: write --log-dir or --log-line-prefix-template or "
        "--log-limit or --log-overflow or --log-tail or --logs-specs");
  CHECK_THAT(problem({"--lr=1"}), Catch::StartsWith("--lr: there is no such flag"));
  CHECK_THAT(problem({"-x"}), Catch::StartsWith("-x: there is no such flag"));
  CHECK_THAT(problem({"-5"}), Catch::StartsWith("-5: there is no such flag"));
  CHECK_THAT(problem({"---tee"}), Catch::StartsWith("---tee: there is no such flag"));
}

TEST_CASE("a value that is missing is missed", "[run_options]") {
  CHECK(problem({"--log-dir", "--tee", "3"}) ==
        "--log-dir: its value is missing, since --tee follows");
  CHECK(problem({"--log-dir", "--log_limit=3"}) ==
        "--log-dir: its value is missing, since --log_limit=3 follows");
  const Line last = problems({"--nproc-per-node", "2", "-t"});
  REQUIRE(last.size() == 2);
  CHECK(last[0] == "-t: its value is missing");
}

TEST_CASE("a program must be there", "[run_options]") {
  for (const Line& line : {Line{}, Line{"--"}, Line{"-t", "3"}, Line{"-t", "3", "--"}}) {
    const Line found = problems(line);
    REQUIRE(found.size() == 1);
    CHECK_THAT(found[0], Catch::StartsWith("the program is missing"));
  }
  CHECK_THAT(problems({""}).at(0), Catch::StartsWith("the program's name is empty"));
}

TEST_CASE("all problems are listed at once, a line each", "[run_options]") {
  const Line found = problems({"--nope",
                               "--nproc-per-node=0",
                               "--tee=5",
                               "--nnodes=1:2",
                               "--timeout=soon",
                               "-m",
                               "--no-python",
                               "--forward=STOP",
                               "--wrap-ranks=0",
                               "--run-path",
                               "--report"},
                              with("PET_MAX_RESTARTS", "x"));
  REQUIRE(found.size() == 12);
  for (const char* start : {"--nope:",
                            "--report: its value is missing",
                            "the program is missing",
                            "--nproc-per-node '0':",
                            "--module with --no-python:",
                            "--wrap-ranks '0' needs --wrap",
                            "--tee '5':",
                            "PET_MAX_RESTARTS 'x':",
                            "--timeout 'soon':",
                            "--forward 'STOP':",
                            "--nnodes '1:2': elastic ranges are not supported",
                            "--run-path:"}) {
    INFO(start);
    CHECK(std::count_if(found.begin(), found.end(), [&](const std::string& line) {
            return line.starts_with(start);
          }) == 1);
  }
}

TEST_CASE("ranks on this host are a number or a word", "[run_options]") {
  CHECK(parse({"--nproc-per-node", "4096"}).nprocs == 4096);
  for (const char* word : {"auto", "cpu", "gpu"}) {
    const RunOptions options = parse({"--nproc-per-node", word});
    CHECK(options.nproc_word == word);
    CHECK_FALSE(options.nprocs);
  }
  for (const char* wrong : {"0", "4097", "-1", "1.5", "", " 2", "xpu"})
    CHECK(problem({"--nproc-per-node", wrong}) ==
          "--nproc-per-node '" + std::string(wrong) +
              "': it must be a whole number from 1 to 4096, or auto, cpu or gpu");
}

TEST_CASE("stream maps take ranges and ranks of many digits", "[run_options]") {
  const RunOptions options = parse({"--nproc-per-node=128", "--tee", "0-9:1,12:3,100-127:2"});
  const StreamMap& tee = options.launch.logs->tee;
  CHECK(tee.of(9) == Streams::out);
  CHECK(tee.of(10) == Streams::none);
  CHECK(tee.of(12) == Streams::both);
  CHECK(tee.of(127) == Streams::err);
}

TEST_CASE("a rank that does not exist is an error where their number is known", "[run_options]") {
  for (const char* flag : {"--tee", "--redirects"}) {
    CHECK(problem({"--nproc-per-node", "4", flag, "0:3,12:1"}) ==
          std::string(flag) + " '0:3,12:1': there is no local rank 12, since --nproc-per-node '4' "
                              "ends them at 3");
    CHECK(problems({flag, "0:3,12:1", "x"}).empty());
    CHECK(problems({"--nproc-per-node=auto", flag, "0:3,12:1", "x"}).empty());
  }
  for (const char* flag : {"--local-ranks-filter", "--stdin", "--wrap-ranks"}) {
    const Line options = {"--wrap=time", flag, "0-4"};
    CHECK_THAT(problem(options, with("PET_NPROC_PER_NODE", "4")),
               Catch::Contains("no local rank 4, since PET_NPROC_PER_NODE '4'"));
    CHECK(problems(options + Line{"--nproc-per-node=5", "x"}).empty());
    CHECK(problems({"--nproc-per-node=2", "--wrap=time", flag, "all", "x"}).empty());
  }
}

TEST_CASE("flags about output reach the log options", "[run_options]") {
  const RunOptions options = parse({"--log-dir=logs",
                                    "--local-ranks-filter=1",
                                    "--prefix",
                                    "[${rank}]",
                                    "--color=always",
                                    "--log-limit=1.5K",
                                    "--log-overflow=drop",
                                    "--log-tail=5"});
  const LogOptions& logs = *options.launch.logs;
  CHECK(logs.directory == "logs");
  CHECK_FALSE(logs.console.contains(0));
  CHECK(logs.console.contains(1));
  CHECK(logs.prefix == "[${rank}]");
  CHECK(logs.color == true);
  CHECK(logs.file_limit_bytes == 1536);
  CHECK(logs.drop_when_full);
  CHECK(logs.tail_lines == 5);
  CHECK(parse({"--color=never"}).launch.logs->color == false);
  CHECK_FALSE(parse({"--color=auto"}).launch.logs->color);
}

TEST_CASE("a log directory of /dev/null means no files", "[run_options]") {
  const LogOptions tee = *parse({"--log-dir=/dev/null", "--tee=3"}).launch.logs;
  CHECK(tee.directory.empty());
  CHECK(tee.tee.empty());
  CHECK(tee.console.contains(0));
  const LogOptions redirected = *parse({"--log-dir=/dev/null", "-r3"}).launch.logs;
  CHECK(redirected.redirects.empty());
  CHECK(redirected.console.empty());
  CHECK_THAT(problem({"--log-dir=/dev/null", "-r", "1:1"}),
             Catch::StartsWith("--log-dir '/dev/null' with --redirects '1:1': "));
}

TEST_CASE("flags about failure reach the launch options", "[run_options]") {
  const LaunchOptions launch = parse({"--exit-code=torchrun",
                                      "--max-restarts=3",
                                      "--ready-after=500ms",
                                      "--shutdown-timeout=0",
                                      "--timeout=1.5m",
                                      "--hang-timeout=2h"})
                                   .launch;
  CHECK(launch.exit_code == ExitCodeRule::torchrun);
  CHECK(launch.max_restarts == 3);
  CHECK(launch.ready_after == 500ms);
  CHECK(launch.grace == 0s);
  CHECK(launch.timeout == 90s);
  CHECK(launch.hang_timeout == 2h);
}

TEST_CASE("flags about ranks reach the options", "[run_options]") {
  const RunOptions options = parse({"--threads=2",
                                    "--numa-binding=exclusive",
                                    "--virtual-local-rank",
                                    "--role=trainer",
                                    "--stdin=0",
                                    "--report=r.json",
                                    "--cluster=local",
                                    "--dry-run",
                                    "--print-env"});
  CHECK(options.launch.threads == 2);
  CHECK(options.launch.binding == Binding::exclusive);
  CHECK(options.launch.virtual_local_rank);
  CHECK(options.launch.role == "trainer");
  CHECK(options.launch.stdin_ranks.contains(0));
  CHECK_FALSE(options.launch.stdin_ranks.contains(1));
  CHECK(options.report_file == "r.json");
  CHECK(options.cluster == "local");
  CHECK(options.dry_run);
  CHECK(options.print_env);
}

TEST_CASE("a signal stops the job or is passed on, never both", "[run_options]") {
  LaunchOptions launch = parse({"--forward", "HUP,usr1"}).launch;
  CHECK(launch.forward == std::vector{SIGHUP, SIGUSR1});
  CHECK(launch.stop_signals == std::vector{SIGINT, SIGTERM, SIGQUIT});
  launch = parse({"--signals-to-handle=SIGTERM,USR1"}).launch;
  CHECK(launch.stop_signals == std::vector{SIGTERM, SIGUSR1});
  CHECK(launch.forward == std::vector{SIGUSR2});
  launch = parse({"--signals-to-handle=TERM,USR1", "--forward=USR1"}).launch;
  CHECK(launch.stop_signals == std::vector{SIGTERM});
  CHECK(launch.forward == std::vector{SIGUSR1});
  CHECK(parse({"--forward=none"}).launch.forward.empty());
}

TEST_CASE("a wrapper is split as a shell would, and never run by one", "[run_options]") {
  CHECK(parse({"--wrap", "valgrind --leak-check=full"}).wrap ==
        Line{"valgrind", "--leak-check=full"});
  CHECK(parse({"--wrap", R"(a  'b  "c' "d'\"\\e\n" \ f'g'"h" '' $x;y|z)"}).wrap ==
        Line{"a", "b  \"c", "d'\"\\e\\n", " fgh", "", "$x;y|z"});
  CHECK(problem({"--wrap", "a \"b"}) == "--wrap 'a \"b': the quote \" is not closed");
  CHECK_THAT(problem({"--wrap", " "}), Catch::StartsWith("--wrap: it names no program"));
  const RunOptions options = parse({"--wrap=gdb", "--wrap-ranks=1,10-12"});
  CHECK(options.wrap_ranks.contains(11));
  CHECK_FALSE(options.wrap_ranks.contains(0));
}

TEST_CASE("several nodes need a place and a meeting point", "[run_options]") {
  const Nodes nodes =
      parse({"--nnodes=2", "--node-rank=1", "--master-addr=node0", "--master-port=29500"})
          .launch.nodes;
  CHECK(nodes.count == 2);
  CHECK(nodes.rank == 1);
  CHECK(nodes.master_address == "node0");
  CHECK(nodes.master_port == 29500);

  const Line found = problems({"--nnodes=2", "x"});
  REQUIRE(found.size() == 2);
  CHECK_THAT(found[0], Catch::StartsWith("--nnodes '2' needs --master-addr"));
  CHECK_THAT(found[1], Catch::StartsWith("--nnodes '2' needs --master-port"));
  CHECK_THAT(problem({"--rdzv-endpoint=node0"}, with("PET_NNODES", "2")),
             Catch::StartsWith("PET_NNODES '2' needs --master-port"));
  CHECK_THAT(problem({"--nnodes=2", "--rdzv-endpoint=node0:0"}),
             Catch::StartsWith("--nnodes '2' needs --master-port"));
  CHECK(problem({"--nnodes=2", "--node-rank=2", "--rdzv-endpoint=node0:1"}) ==
        "--node-rank '2': with --nnodes 2 the nodes are numbered from 0 to 1");
  CHECK_THAT(problem({"--node-rank=1"}), Catch::StartsWith("--node-rank '1': with --nnodes 1 "));
  CHECK_THAT(problem({"--nnodes=2", "--rdzv-backend=c10d", "--rdzv-endpoint=node0:1"}),
             Catch::StartsWith("--nnodes '2' with --rdzv-backend 'c10d' needs --node-rank"));
}

TEST_CASE("only a fixed number of nodes is taken", "[run_options]") {
  CHECK(parse({"--nnodes=3:3", "--rdzv-endpoint=a:1"}).launch.nodes.count == 3);
  CHECK(problem({"--nnodes=1:4"}) ==
        "--nnodes '1:4': elastic ranges are not supported: use a fixed number, and "
        "--max-restarts or the scheduler's requeue");
  for (const char* wrong : {"0", "2:", ":2", "1:2:3", "two"})
    CHECK_THAT(problem({"--nnodes", wrong}), Catch::StartsWith("--nnodes '"));
}

TEST_CASE("an endpoint is a host, with or without a port", "[run_options]") {
  const auto nodes = [](const std::string& text) {
    return parse({"--rdzv-endpoint", text, "--master-addr=other", "--master-port=7"}).launch.nodes;
  };
  CHECK(nodes("node0:29400").master_address == "node0");
  CHECK(nodes("node0:29400").master_port == 29400);
  CHECK(nodes("node0").master_port == 7);
  CHECK(nodes("[::1]:5").master_address == "::1");
  CHECK(nodes("[::1]:5").master_port == 5);
  CHECK(nodes("[::1]").master_address == "::1");
  CHECK(nodes("fe80::1").master_address == "fe80::1");
  for (const char* wrong :
       {":1", "a:", "a:b", "[::1", "[::1]5", "tcp://a:1", "a:65536", "[]:1", "a b"})
    CHECK_THAT(problem({"--rdzv-endpoint", wrong}),
               Catch::StartsWith("--rdzv-endpoint '" + std::string(wrong) + "'"));
  CHECK(parse({"--master-addr=[::1]"}).launch.nodes.master_address == "::1");
}

TEST_CASE("standalone overrides what is said about nodes, but for their number", "[run_options]") {
  const LaunchOptions launch = parse({"--standalone",
                                      "--master-addr=elsewhere",
                                      "--node-rank=3",
                                      "--rdzv-id=7",
                                      "--rdzv-endpoint=elsewhere:1"})
                                   .launch;
  CHECK(launch.nodes.count == 1);
  CHECK(launch.nodes.rank == 0);
  CHECK(launch.nodes.master_address.empty());
  CHECK(launch.nodes.master_port == 0);
  CHECK(launch.run_id.empty());
  CHECK_THAT(problem({"--standalone", "--nnodes=2"}),
             Catch::StartsWith("--standalone with --nnodes '2': "));
  CHECK_THAT(problem({"--nnodes=2"}, with("PET_STANDALONE", "1")),
             Catch::StartsWith("PET_STANDALONE with --nnodes '2': "));
}

TEST_CASE("rendezvous settings are known ones", "[run_options]") {
  CHECK(parse({"--rdzv-conf", "join_timeout=60,is_host=0"}).launch.start_timeout == 60s);
  CHECK(parse({"--rdzv-conf", "read_timeout=60"}).launch.start_timeout == 5min);
  CHECK(parse({"--rdzv-id", "7"}).launch.run_id == "7");
  CHECK_THAT(problem({"--rdzv-conf", "is_host=1,ttl=3"}), Catch::Contains("'ttl=3' is no setting"));
  CHECK_THAT(problem({"--rdzv-conf", "is_host"}), Catch::Contains("'is_host' is no setting"));
  CHECK_THAT(problem({"--rdzv-conf", "timeout"}), Catch::StartsWith("--rdzv-conf: timeout ''"));
  CHECK_THAT(problem({"--rdzv-conf", "timeout=x"}), Catch::StartsWith("--rdzv-conf: timeout 'x'"));
}

TEST_CASE("what is refused comes with what to use instead", "[run_options]") {
  CHECK_THAT(problem({"--run-path"}), Catch::Contains("write the script's path"));
  CHECK(problems({"--run-path=0", "x"}).empty());
  CHECK_THAT(problem({}, with("PET_RUN_PATH", "1")), Catch::StartsWith("PET_RUN_PATH: "));
  CHECK_THAT(problem({"--logs-specs=a"}), Catch::Contains("--log-dir"));
  CHECK_THAT(problem({"--duplicate-stdout-filters=a"}), Catch::Contains("grep"));
  CHECK_THAT(problem({"--duplicate-stderr-filters=a"}), Catch::Contains("grep"));
  CHECK_THAT(problem({"--print-completion=zsh"}), Catch::Contains("muster completion bash"));
  CHECK_THAT(problem({"--event-log-handler=console"}), Catch::Contains("--report"));
  CHECK_THAT(problem({"--rdzv-backend=etcd"}), Catch::Contains("use static"));
}

TEST_CASE("signals have names and numbers", "[signals]") {
  CHECK(cli::signal_from("TERM") == SIGTERM);
  CHECK(cli::signal_from("sigterm") == SIGTERM);
  CHECK(cli::signal_from("15") == SIGTERM);
  CHECK(cli::signal_from("IO") == SIGIO);
  CHECK(cli::signal_from("RTMIN") == SIGRTMIN);
  CHECK(cli::signal_from("SIGRTMIN+3") == SIGRTMIN + 3);
  CHECK(cli::signal_from("RTMAX-1") == SIGRTMAX - 1);
  for (const char* wrong :
       {"", "0", "32", "65", "-1", "SIG", "USR3", "RTMIN+31", "RTMIN-1", "RTMAX+1", "RTMIN+"})
    CHECK_FALSE(cli::signal_from(wrong));
  for (int signal = 1; signal <= SIGRTMAX; ++signal)
    if (cli::signal_from(std::to_string(signal)))
      CHECK(cli::signal_from(cli::signal_name(signal)) == signal);
  CHECK(cli::parse_signals("USR1,10,HUP", "-s") == std::vector{SIGUSR1, SIGHUP});
  for (const char* wrong : {"KILL", "19", "CHLD", "SEGV", "TERM,", "", "none"})
    CHECK_THROWS_AS(cli::parse_signals(wrong, "-s"), UsageError);
  CHECK_THROWS_WITH(
      cli::parse_signals("TERM,KILL", "-s"),
      "-s 'TERM,KILL': SIGKILL cannot be among them: no process can handle it; leave it out");
}

TEST_CASE("times and sizes have units", "[units]") {
  CHECK(cli::parse_duration("90", "-d") == 90s);
  CHECK(cli::parse_duration("90s", "-d") == 90s);
  CHECK(cli::parse_duration("1.5m", "-d") == 90s);
  CHECK(cli::parse_duration("2h", "-d") == 2h);
  CHECK(cli::parse_duration("1d", "-d") == 24h);
  CHECK(cli::parse_duration("500ms", "-d") == 500ms);
  CHECK(cli::parse_duration("0.0001", "-d") == 1ms);
  CHECK(cli::parse_duration("36500d", "-d") == 36500 * 24h);
  for (const char* wrong :
       {"", "s", "1x", "1 s", "1e3", "nan", "inf", "-1", "-0.1s", "36501d", "+1", "0x10"})
    CHECK_THROWS_AS(cli::parse_duration(wrong, "-d"), UsageError);
  CHECK(cli::parse_size("0", "-s") == 0);
  CHECK(cli::parse_size("64M", "-s") == 64U << 20);
  CHECK(cli::parse_size("1.5K", "-s") == 1536);
  for (const char* wrong : {"", "M", "-1", "1MB", "1e6", "9999999T"})
    CHECK_THROWS_AS(cli::parse_size(wrong, "-s"), UsageError);
}

TEST_CASE("help tells every flag on two screens", "[help]") {
  const std::string help = cli::run_help();
  for (const Flag& flag : cli::flags()) {
    INFO(flag.name);
    CHECK_THAT(help, Catch::Contains(to_string(flag)));
  }
  std::istringstream lines(help);
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    INFO(line);
    CHECK(line.size() <= 80);
  }
  CHECK(count <= 80);
}
