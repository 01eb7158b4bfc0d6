#include "run_options.hpp"

#include <algorithm>
#include <array>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "nodes.hpp"
#include "reader.hpp"
#include "shell_words.hpp"
#include "signals.hpp"
#include "units.hpp"

namespace muster::cli {

namespace {

constexpr int most_ranks = 4096; // on a host
constexpr int most = 1'000'000;

/// For Reader::read: a number from `least`.
auto at_least(int least) {
  return [least](const Given& given) { return whole(given, least, most); };
}

std::chrono::milliseconds duration(const Given& given) {
  return parse_duration(given.text, given.subject);
}

std::chrono::milliseconds limit(const Given& given) {
  const auto time = duration(given);
  if (time.count() == 0)
    throw UsageError(fmt::format(
        "{} '{}': it must be longer than 0; leave it out for no limit", given.subject, given.text));
  return time;
}

RankSet ranks(const Given& given) { return RankSet::parse(given.text, given.subject); }

StreamMap streams(const Given& given) { return StreamMap::parse(given.text, given.subject); }

std::vector<int> signals(const Given& given) { return parse_signals(given.text, given.subject); }

Binding binding(const Given& given) {
  return pick<Binding>(given,
                       {{"none", Binding::none},
                        {"node", Binding::node},
                        {"socket", Binding::socket},
                        {"core-complex", Binding::core_complex},
                        {"exclusive", Binding::exclusive}});
}

void read_nprocs(Reader& reader, RunOptions& options) {
  const auto given = reader.find("nproc-per-node");
  if (given && (given->text == "auto" || given->text == "cpu" || given->text == "gpu"))
    options.nproc_word = given->text;
  else
    options.nprocs = reader.get("nproc-per-node", [](const Given& number) {
      try {
        return whole(number, 1, most_ranks);
      } catch (const UsageError& error) {
        throw UsageError(fmt::format("{}, or auto, cpu or gpu", error.what()));
      }
    });
}

void read_program(Reader& reader, RunOptions& options) {
  if (options.command.empty())
    reader.problem("the program is missing: write it after the options, as in muster run "
                   "--nproc-per-node 4 ./train --epochs 3");
  else if (options.command.front().empty())
    reader.problem("the program's name is empty: write it after the options");
  reader.read("module", options.module);
  reader.read("no-python", options.no_python);
  if (options.module && options.no_python)
    reader.problem("{} with {}: a module needs Python; leave one out",
                   reader.find("module")->subject,
                   reader.find("no-python")->subject);
  reader.read("wrap", options.wrap, [](const Given& given) {
    auto words = shell_words(given.text, given.subject);
    if (words.empty())
      throw UsageError(given.subject + ": it names no program; leave it out instead");
    return words;
  });
  reader.read("wrap-ranks", options.wrap_ranks, ranks);
  if (reader.find("wrap-ranks") && !reader.find("wrap"))
    reader.problem("{} needs --wrap, the command to put before the program",
                   reader.spell("wrap-ranks"));
}

void read_ranks(Reader& reader, LaunchOptions& launch) {
  launch.threads = reader.get("threads", at_least(1));
  reader.read("numa-binding", launch.binding, binding);
  reader.read("virtual-local-rank", launch.virtual_local_rank);
  reader.read("role", launch.role);
  reader.read("stdin", launch.stdin_ranks, ranks);
}

/// torchrun's way to say that nothing is written to files.
void discard_files(Reader& reader, LogOptions& logs) {
  logs.directory.clear();
  logs.tee = {};
  if (logs.redirects.empty())
    return;
  const auto redirects = reader.find("redirects");
  if (redirects->text == "3")
    logs.console = {};
  else
    reader.problem("{} with {} '{}': these streams would be lost; choose what is shown with "
                   "--local-ranks-filter, or name a directory",
                   reader.spell("log-dir"),
                   redirects->subject,
                   redirects->text);
  logs.redirects = {};
}

void read_logs(Reader& reader, LogOptions& logs) {
  reader.read("log-dir", logs.directory);
  reader.read("redirects", logs.redirects, streams);
  reader.read("tee", logs.tee, streams);
  reader.read("local-ranks-filter", logs.console, ranks);
  reader.read("prefix", logs.prefix, [](const Given& given) { return given.text; });
  reader.read("color", logs.color, [](const Given& given) {
    return pick<std::optional<bool>>(given,
                                     {{"auto", std::nullopt}, {"always", true}, {"never", false}});
  });
  reader.read("log-limit", logs.file_limit_bytes, [](const Given& given) {
    return parse_size(given.text, given.subject);
  });
  reader.read("log-overflow", logs.drop_when_full, [](const Given& given) {
    return pick<bool>(given, {{"wait", false}, {"drop", true}});
  });
  reader.read("log-tail", logs.tail_lines, at_least(0));
  if (logs.directory == "/dev/null")
    discard_files(reader, logs);
}

void read_failure(Reader& reader, LaunchOptions& launch) {
  reader.read("exit-code", launch.exit_code, [](const Given& given) {
    return pick<ExitCodeRule>(given,
                              {{"first", ExitCodeRule::first},
                               {"max", ExitCodeRule::max},
                               {"torchrun", ExitCodeRule::torchrun}});
  });
  reader.read("max-restarts", launch.max_restarts, at_least(0));
  reader.read("ready-after", launch.ready_after, duration);
  reader.read("shutdown-timeout", launch.grace, duration);
  launch.timeout = reader.get("timeout", limit);
  launch.hang_timeout = reader.get("hang-timeout", limit);
}

/// A signal either stops the job or is passed on. What was asked for wins over a default, and
/// --forward over --signals-to-handle.
void read_signals(Reader& reader, LaunchOptions& launch) {
  const auto stop = reader.get("signals-to-handle", signals);
  const auto forward = reader.get("forward", [](const Given& given) {
    return given.text == "none" ? std::vector<int>() : signals(given);
  });
  launch.stop_signals = stop.value_or(launch.stop_signals);
  launch.forward = forward.value_or(launch.forward);
  const bool stop_wins = stop && !forward;
  const auto& kept = stop_wins ? launch.stop_signals : launch.forward;
  auto& other = stop_wins ? launch.forward : launch.stop_signals;
  std::erase_if(other, [&kept](int signal) {
    return std::find(kept.begin(), kept.end(), signal) != kept.end();
  });
}

/// What torchrun takes, and what means nothing here: right values are accepted.
void read_without_effect(Reader& reader) {
  std::string address;
  reader.read("local-addr", address);
  reader.get("monitor-interval", duration);
  reader.get("start-method", [](const Given& given) {
    return pick<bool>(given, {{"spawn", true}, {"fork", true}, {"forkserver", true}});
  });
  reader.get("event-log-handler", [](const Given& given) {
    if (given.text != "null" && given.text != "dynamic_rendezvous")
      throw UsageError(fmt::format("{} '{}': there are no event handlers here; use --report FILE",
                                   given.subject,
                                   given.text));
    return true;
  });
}

void refuse(Reader& reader) {
  constexpr auto instead = std::to_array<std::pair<const char*, const char*>>({
      {"logs-specs", "there are no plug-ins here; use --log-dir, --redirects and --tee"},
      {"duplicate-stdout-filters",
       "lines are not filtered here; use --log-dir, and grep its files"},
      {"duplicate-stderr-filters",
       "lines are not filtered here; use --log-dir, and grep its files"},
      {"print-completion", "use muster completion bash"},
  });
  for (const auto& [flag, advice] : instead)
    if (reader.find(flag))
      reader.problem("{}: {}", reader.spell(flag), advice);
  bool run_path = false;
  reader.read("run-path", run_path);
  if (run_path)
    reader.problem("{}: it needs Python in the launcher; write the script's path as the program",
                   reader.find("run-path")->subject);
}

/// Ranks that are named must exist, where it is known how many there are.
void check_local_ranks(Reader& reader, const RunOptions& options) {
  if (!options.nprocs)
    return;
  const auto named = std::to_array<std::pair<const char*, int>>({
      {"redirects", options.launch.logs->redirects.highest()},
      {"tee", options.launch.logs->tee.highest()},
      {"local-ranks-filter", options.launch.logs->console.highest()},
      {"stdin", options.launch.stdin_ranks.highest()},
      {"wrap-ranks", options.wrap_ranks.highest()},
  });
  for (const auto& [flag, highest] : named)
    if (highest >= *options.nprocs)
      reader.problem("{}: there is no local rank {}, since {} ends them at {}",
                     reader.spell(flag),
                     highest,
                     reader.spell("nproc-per-node"),
                     *options.nprocs - 1);
}

} // namespace

RunOptions parse_run(const std::vector<std::string>& arguments, const EnvSnapshot& environment) {
  const Words words = take_apart(arguments);
  Reader reader(words, environment);
  RunOptions options;
  reader.read("help", options.help);
  reader.read("version", options.version);
  if (options.help || options.version)
    return options;
  options.command = words.command;
  options.launch.logs.emplace();
  read_nprocs(reader, options);
  read_program(reader, options);
  read_ranks(reader, options.launch);
  read_logs(reader, *options.launch.logs);
  read_failure(reader, options.launch);
  read_signals(reader, options.launch);
  read_nodes(reader, options.launch);
  read_without_effect(reader);
  refuse(reader);
  reader.read("report", options.report_file);
  reader.read("cluster", options.cluster, [](const Given& given) {
    return pick<std::string>(given, {{"local", "local"}});
  });
  reader.read("dry-run", options.dry_run);
  reader.read("print-env", options.print_env);
  check_local_ranks(reader, options);
  if (!reader.problems().empty())
    throw UsageError(fmt::format("{}", fmt::join(reader.problems(), "\n")));
  return options;
}

} // namespace muster::cli
