#include "run.hpp"

#include <muster/launch/contract.hpp>
#include <muster/launch/init.hpp>
#include <muster/launch/subprocess_launcher.hpp>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <memory>

#include <signal.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "python.hpp"

namespace muster::cli {

namespace {

/// What of our own messages is printed: MUSTER_LOG.
enum class Talk { none, error, info, debug };

Talk talk_from(const char* text) {
  static constexpr const char* names[] = {"none", "error", "info", "debug"};
  if (text == nullptr || *text == '\0')
    return Talk::info;
  for (int i = 0; i < 4; ++i)
    if (text == std::string(names[i]))
      return static_cast<Talk>(i);
  throw UsageError(
      fmt::format("MUSTER_LOG='{}': it must be one of none, error, info, debug", text));
}

/// Standard error may be closed or full: that ends nothing.
void say(const std::string& text) { std::fwrite(text.data(), 1, text.size(), stderr); }

/// A parent may have left them blocked.
void unblock(const std::vector<int>& signals) {
  sigset_t set;
  ::sigemptyset(&set);
  for (const int signal : signals)
    ::sigaddset(&set, signal);
  ::sigprocmask(SIG_UNBLOCK, &set, nullptr);
}

std::vector<std::string> program_of(const RunOptions& options) {
  if (options.module)
    return as_module(options.command);
  return options.no_python ? options.command : with_python(options.command);
}

/// The same, for chosen ranks with a debugger or profiler before it.
std::vector<std::string> argv_of(const RunOptions& options, const RankSpec& rank) {
  std::vector<std::string> argv = program_of(options);
  if (options.wrap_ranks.contains(rank.local_rank))
    argv.insert(argv.begin(), options.wrap.begin(), options.wrap.end());
  return argv;
}

class RunLauncher : public SubprocessLauncher {
public:
  RunLauncher(int nprocs, LaunchOptions launch, const RunOptions& options)
      : SubprocessLauncher(StartMethod::spawn, nprocs, std::move(launch)), options_(options) {}

  JobReport spawn(Task task) override {
    if (!options_.wrap.empty())
      for (RankSpec& rank : task.ranks)
        rank.argv = argv_of(options_, rank);
    return SubprocessLauncher::spawn(std::move(task));
  }

private:
  const RunOptions& options_;
};

/// The file of --report, opened before anything starts and written at the end.
class ReportFile {
public:
  explicit ReportFile(const std::string& path) : path_(path) {
    if (!path.empty())
      file_.reset(std::fopen(path.c_str(), "we"));
    if (!path.empty() && !file_)
      throw UsageError(
          fmt::format("--report '{}' cannot be written: {}", path, ::strerrordesc_np(errno)));
  }

  void write(const std::string& text) {
    if (file_ && (std::fputs(text.c_str(), file_.get()) < 0 || std::fflush(file_.get()) != 0))
      say(fmt::format("muster: --report '{}' is not whole: {}\n", path_, ::strerrordesc_np(errno)));
  }

private:
  struct Close {
    void operator()(std::FILE* file) const noexcept { std::fclose(file); }
  };

  std::string path_;
  std::unique_ptr<std::FILE, Close> file_;
};

/// What would be started, for --dry-run and --print-env.
void print_plan(const RunOptions& options, const RunLauncher& launcher) {
  const Task task = launcher.plan();
  const auto count = static_cast<int>(task.ranks.size());
  const int share = std::max(1, nprocs_from("cpu") / count);
  const JobShape shape{.local_size = count,
                       .threads = options.launch.threads.value_or(share),
                       .threads_chosen = options.launch.threads.has_value(),
                       .port = options.launch.nodes.master_port,
                       .token = "(random)"};
  for (const RankSpec& rank : task.ranks) {
    if (options.dry_run)
      fmt::print("rank {}: {}\n", rank.rank, fmt::join(argv_of(options, rank), " "));
    if (options.print_env)
      for (const std::string& variable : rank_environment(rank, launcher.options(), shape, ""))
        fmt::print("rank {}: {}\n", rank.rank, variable);
  }
}

int execute(const RunOptions& options, RunLauncher& launcher, Talk talk) {
  ReportFile file(options.report_file);
  int code = 0;
  try {
    launcher.execute({program_of(options)});
    if (talk == Talk::debug)
      say(to_string(launcher.last_report()));
  } catch (const UsageError&) {
    throw;
  } catch (const SpawnFailure& failure) {
    JobReport report;
    report.reason = failure.what();
    file.write(to_json(report));
    throw;
  } catch (const Error& error) {
    if (talk >= Talk::error)
      say(to_string(launcher.last_report()));
    code = launcher.last_report().exit_code();
  }
  for (const std::string& note : launcher.last_report().notes)
    if (code == 0 && talk == Talk::info)
      say("muster: " + note + "\n");
  file.write(to_json(launcher.last_report()));
  return code;
}

} // namespace

int run(const RunOptions& options) {
  const Talk talk = talk_from(std::getenv("MUSTER_LOG"));
  const int nprocs =
      options.nproc_word.empty() ? options.nprocs.value_or(1) : nprocs_from(options.nproc_word);
  LaunchOptions launch = options.launch;
  unblock(launch.stop_signals);
  launch.owns_process = true;
  if (talk < Talk::error)
    launch.on_failure = nullptr;
  if (talk >= Talk::info)
    launch.on_note = [](const std::string& note) { say("muster: " + note + "\n"); };
  RunLauncher launcher(nprocs, std::move(launch), options);
  if (options.dry_run || options.print_env) {
    print_plan(options, launcher);
    return 0;
  }
  return execute(options, launcher, talk);
}

} // namespace muster::cli
