#include "job.hpp"

#include <muster/launch/contract.hpp>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <memory>

#include <sys/random.h>
#include <unistd.h>

#include <fmt/format.h>

#include "../process/binding.hpp"
#include "../process/birth.hpp"
#include "../process/executable.hpp"
#include "../process/open_files.hpp"
#include "../process/program.hpp"
#include "../process/reserved_port.hpp"
#include "../process/supervisor.hpp"
#include "checks.hpp"
#include "cpus.hpp"
#include "error_file.hpp"

namespace muster {

namespace {

using process::Part;

std::string random_token() {
  std::uint64_t words[2] = {};
  [[maybe_unused]] const ssize_t size = ::getrandom(words, sizeof words, 0);
  return fmt::format("{:016x}{:016x}", words[0], words[1]);
}

/// A job on this host: what is decided once, and its attempts.
class Job {
public:
  Job(Task task, StartMethod method, Part part, const LaunchOptions& options);

  JobReport run();

private:
  int local_size() const { return static_cast<int>(task_.ranks.size()); }
  void choose_threads();
  void find_programs();
  void note(const std::string& text) const;
  JobReport run_attempt(int attempt);
  void open_streams(int attempt);
  process::JobPart job_part(const JobShape& shape) const;
  bool may_restart(const JobReport& report) const;

  Task task_;
  StartMethod method_;
  Part part_;
  LaunchOptions options_;
  int threads_ = 1;
  std::vector<process::ExecTarget> targets_;
  process::OpenFileLimit open_files_;
  process::Interrupts interrupts_;
  std::unique_ptr<process::LogPump> logs_;
  std::unique_ptr<process::InputPump> input_;
  std::unique_ptr<process::ErrorFiles> errors_;
  std::vector<process::StandardFds> streams_;
};

Job::Job(Task task, StartMethod method, Part part, const LaunchOptions& options)
    : task_(std::move(task)),
      method_(method),
      part_(part),
      options_(options),
      open_files_(task_.ranks.size()),
      interrupts_(options_) {
  if (method_ == StartMethod::spawn)
    find_programs();
  note(process::bind_ranks(task_.ranks, options_.binding));
  choose_threads();
}

void Job::note(const std::string& text) const {
  if (!text.empty() && options_.on_note)
    options_.on_note(text);
}

void Job::choose_threads() {
  if (options_.threads) {
    threads_ = *options_.threads;
  } else if (const char* chosen = std::getenv("OMP_NUM_THREADS")) {
    threads_ = std::atoi(chosen);
  } else {
    const int cpus = usable_cpus();
    threads_ = std::max(1, cpus / local_size());
    if (local_size() == 1)
      return;
    note(fmt::format("{} thread{} for each rank, since there are {} usable CPUs for {} ranks",
                     threads_,
                     threads_ == 1 ? "" : "s",
                     cpus,
                     local_size()));
  }
}

void Job::find_programs() {
  const auto* command = std::get_if<Command>(&task_.work);
  for (const RankSpec& spec : task_.ranks) {
    if (spec.argv.empty() && !command) {
      targets_.push_back({"", process::Program::get()->arguments()});
      continue;
    }
    auto argv = spec.argv.empty() ? command->argv : spec.argv;
    if (!targets_.empty() && targets_.back().argv == argv) {
      targets_.push_back(targets_.back());
      continue;
    }
    std::string path = process::find_program(argv.at(0));
    targets_.push_back({std::move(path), std::move(argv)});
  }
}

/// Pipes for the ranks' input and output, and files for what they say of their own failures.
void Job::open_streams(int attempt) {
  streams_.assign(task_.ranks.size(), {-1, STDOUT_FILENO, STDERR_FILENO});
  logs_.reset();
  if (options_.logs) {
    logs_ = std::make_unique<process::LogPump>(*options_.logs, options_.role, attempt, task_.ranks);
    options_.logs->directory = logs_->directory();
    for (std::size_t i = 0; i < streams_.size(); ++i) {
      streams_[i].output = logs_->child_end(i, STDOUT_FILENO);
      streams_[i].error = logs_->child_end(i, STDERR_FILENO);
    }
  }
  if (!options_.stdin_ranks.empty() && !input_) {
    input_ = std::make_unique<process::InputPump>(options_.stdin_ranks, task_.ranks);
    for (std::size_t i = 0; i < streams_.size(); ++i)
      streams_[i].input = input_->child_end(i);
  }
  errors_.reset();
  if (part_ == Part::program) {
    std::vector<int> ranks;
    for (const RankSpec& spec : task_.ranks)
      ranks.push_back(spec.rank);
    errors_ = std::make_unique<process::ErrorFiles>(
        logs_ ? options_.logs->directory : "", attempt, ranks);
  }
}

process::JobPart Job::job_part(const JobShape& shape) const {
  process::JobPart job;
  job.part = part_;
  if (const auto* work = std::get_if<Work>(&task_.work)) {
    job.thunk = work->thunk;
    job.function = work->function;
  }
  job.size = shape.size(options_.nodes);
  job.local_size = shape.local_size;
  job.node_rank = options_.nodes.rank;
  job.node_count = options_.nodes.count;
  if (options_.nodes.count > 1) {
    job.master_address = master_address(options_.nodes);
    job.master_port = shape.port;
  }
  job.attempt = shape.attempt;
  job.threads = shape.threads;
  job.group_timeout_ms = options_.group_timeout.count();
  if (method_ == StartMethod::forkserver)
    job.state = process::process_state();
  return job;
}

JobReport Job::run_attempt(int attempt) {
  const bool reserves = options_.nodes.rank == 0; // where rank 0 will listen
  const auto port =
      reserves ? std::optional<process::ReservedPort>(options_.nodes.master_port) : std::nullopt;
  const JobShape shape{.local_size = local_size(),
                       .attempt = attempt,
                       .threads = threads_,
                       .threads_chosen = options_.threads.has_value(),
                       .port = port ? port->port() : options_.nodes.master_port,
                       .token = random_token()};
  open_streams(attempt);
  std::vector<std::vector<std::string>> environments;
  for (std::size_t i = 0; i < task_.ranks.size(); ++i)
    environments.push_back(rank_environment(
        task_.ranks[i], options_, shape, errors_ ? errors_->path(i) : std::string()));
  const auto page = process::StatusPage::create(task_.ranks.size());
  if (part_ != Part::program)
    for (std::size_t i = 0; i < task_.ranks.size(); ++i)
      page.slot(i)->linked = true;
  process::Diagnosis diagnosis(errors_.get());
  process::Supervisor supervisor(options_,
                                 {.part = part_,
                                  .page = page,
                                  .token = shape.token,
                                  .interrupts = interrupts_,
                                  .diagnosis = diagnosis,
                                  .logs = logs_.get(),
                                  .input = input_.get()});
  std::vector<int> own = {supervisor.fd(), interrupts_.fd()};
  if (port)
    own.push_back(port->fd());
  for (const auto& fds :
       {logs_ ? logs_->fds() : std::vector<int>(), input_ ? input_->fds() : std::vector<int>()})
    own.insert(own.end(), fds.begin(), fds.end());
  auto children = process::start_ranks({.method = method_,
                                        .task = task_,
                                        .job = job_part(shape),
                                        .environments = environments,
                                        .targets = targets_,
                                        .streams = streams_,
                                        .page = page,
                                        .token = shape.token,
                                        .launcher_fds = std::move(own)});
  if (logs_)
    logs_->close_child_ends();
  if (input_)
    input_->close_child_ends();
  JobReport report = supervisor.run(std::move(children), task_.ranks);
  report.attempt = attempt;
  return report;
}

/// A rank failed by itself, after all of them had been ready.
bool Job::may_restart(const JobReport& report) const {
  return report.attempt < options_.max_restarts && report.first_failure() && !report.stopped &&
         std::all_of(report.ranks.begin(), report.ranks.end(), [](const RankReport& rank) {
           return rank.ready;
         });
}

/// Before restart `attempt`: none the first time, then 0.5 s, 1 s, ... up to 30 s.
std::chrono::milliseconds back_off(int attempt) {
  if (attempt < 2)
    return {};
  return std::min(std::chrono::milliseconds(500) * (1 << std::min(attempt - 2, 10)),
                  std::chrono::milliseconds(30'000));
}

JobReport Job::run() {
  for (int attempt = 0;; ++attempt) {
    JobReport report = run_attempt(attempt);
    if (!may_restart(report))
      return report;
    const auto pause = back_off(attempt + 1);
    note(fmt::format("restart {} of {}{}: {}",
                     attempt + 1,
                     options_.max_restarts,
                     pause.count() > 0 ? fmt::format(" in {} ms", pause.count()) : "",
                     report.reason));
    if (interrupts_.stops_within(pause))
      return report; // the next attempt would only be stopped
  }
}

} // namespace

JobReport run_job(Task task, StartMethod method, Part part, const LaunchOptions& options) {
  check_task(task, method, part, options);
  return Job(std::move(task), method, part, options).run();
}

} // namespace muster
