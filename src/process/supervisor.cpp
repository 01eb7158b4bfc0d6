#include "supervisor.hpp"

#include <muster/launch/error.hpp>

#include <algorithm>
#include <cerrno>

#include <fcntl.h>
#include <signal.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <fmt/format.h>

#include "channel.hpp"
#include "pidfd.hpp"
#include "program.hpp"
#include "stack_of.hpp"
#include "symbolize.hpp"
#include "sys.hpp"

namespace muster::process {

namespace {

constexpr auto echo_patience = std::chrono::milliseconds(100);
constexpr auto dies_after_kill_within = std::chrono::seconds(10);
constexpr auto console_patience = std::chrono::seconds(1); // for a console after a stop

/// What an epoll event is about, packed into its 64 bits.
enum class About : std::uint64_t { process, channel, guardian, news, logs, input };

constexpr std::uint64_t tag(About about, std::size_t index = 0) {
  return static_cast<std::uint64_t>(about) << 32 | index;
}

std::string host_name() {
  char name[256] = {};
  ::gethostname(name, sizeof name - 1);
  return name;
}

/// The one-line state of a process that does not die: its state and what the kernel waits for.
std::string kernel_state(pid_t pid);

} // namespace

Supervisor::Supervisor(const LaunchOptions& options, Attempt attempt)
    : options_(options),
      attempt_(attempt),
      hangs_(attempt.page, options.hang_timeout),
      epoll_(sys::checked("epoll_create1", [] { return ::epoll_create1(EPOLL_CLOEXEC); })),
      store_([this](std::size_t rank, StoreReply reply) {
        send(rank, Kind::store_reply, pack(reply));
      }) {
  watch(attempt_.interrupts.fd(), tag(About::news), EPOLLIN);
  if (attempt_.logs)
    watch(attempt_.logs->fd(), tag(About::logs), EPOLLIN);
  if (attempt_.input)
    watch(attempt_.input->fd(), tag(About::input), EPOLLIN);
}

/// Ranks are only left here when an exception ended run().
Supervisor::~Supervisor() {
  if (alive_ == 0)
    return;
  kill();
  for (const Member& member : members_)
    if (!member.ended)
      wait_for_end(member.child.pidfd.get());
}

void Supervisor::watch(int fd, std::uint64_t about, std::uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = about;
  sys::checked("epoll_ctl", [&] { return ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event); });
}

/// A guardian that dies is replaced, and told of the ranks that live.
void Supervisor::watch_guardian() {
  guardian_ = Program::get()->guardian();
  watch(guardian_->pidfd(), tag(About::guardian), EPOLLIN);
  for (const Member& member : members_)
    if (!member.ended)
      guardian_->watch(member.child.pid);
}

void Supervisor::take_charge(std::vector<Child> children, const std::vector<RankSpec>& ranks) {
  const auto now = Clock::now();
  const std::string host = host_name();
  for (std::size_t i = 0; i < children.size(); ++i) {
    RankReport report;
    report.rank = ranks[i].rank;
    report.local_rank = ranks[i].local_rank;
    report.pid = children[i].pid;
    report.host = host;
    report.started = now - began_;
    report.result = children[i].result;
    report_.ranks.push_back(std::move(report));
    members_.push_back({std::move(children[i])});
  }
  alive_ = members_.size();
  if (attempt_.part != Part::program)
    start_limit_ = now + options_.start_timeout;
  if (options_.timeout)
    job_limit_ = now + *options_.timeout;
  for (std::size_t i = 0; i < members_.size(); ++i) {
    watch(members_[i].child.pidfd.get(), tag(About::process, i), EPOLLIN);
    watch(members_[i].child.control.get(), tag(About::channel, i), EPOLLIN);
  }
  watch_guardian();
}

JobReport Supervisor::run(std::vector<Child> children, const std::vector<RankSpec>& ranks) {
  take_charge(std::move(children), ranks);
  on_news(); // what came before now
  while (alive_ > 0)
    turn();
  sweep(); // before the output is waited for: daemons may hold it
  while (!output_done())
    turn();
  if (callback_error_)
    std::rethrow_exception(callback_error_);
  finish_report();
  report_.exit_code_rule = options_.exit_code;
  return std::move(report_);
}

void Supervisor::sweep() const {
  std::vector<ino_t> channels;
  std::vector<pid_t> pids;
  for (const Member& member : members_) {
    channels.push_back(member.child.channel);
    pids.push_back(member.child.pid);
  }
  orphans_.run(attempt_.token, channels, pids);
}

bool Supervisor::output_done() const { return !attempt_.logs || attempt_.logs->idle(); }

/// What can wait until all ranks have ended.
void Supervisor::finish_report() {
  if (report_.first)
    if (auto& crash = members_[static_cast<std::size_t>(*report_.first)].crash)
      report(static_cast<std::size_t>(*report_.first)).backtrace =
          Backtrace([told = std::move(*crash)] { return symbolize(told.record, told.maps); });
  if (!attempt_.logs)
    return;
  for (std::size_t i = 0; i < members_.size(); ++i) {
    if (!report(i).succeeded())
      report(i).log_tail = attempt_.logs->tail(i);
    report(i).log_files = attempt_.logs->files(i);
  }
  const auto notes = attempt_.logs->notes();
  report_.notes.insert(report_.notes.end(), notes.begin(), notes.end());
}

/// One turn of the loop: wait, take in everything that has happened, then judge it together, so
/// that of failures that arrive at once the cause is found and not the echo.
void Supervisor::turn() {
  epoll_event events[64];
  const int count = ::epoll_wait(epoll_.get(), events, 64, wait_ms());
  // Channels first: what a rank said before it ended is known when it is reaped.
  for (int i = 0; i < count; ++i)
    if (events[i].data.u64 >> 32 != static_cast<std::uint64_t>(About::process))
      on_event(events[i].data.u64, events[i].events);
  for (int i = 0; i < count; ++i)
    if (events[i].data.u64 >> 32 == static_cast<std::uint64_t>(About::process))
      reap(events[i].data.u64 & 0xffffffff);
  judge();
  on_time(Clock::now());
}

int Supervisor::wait_ms() const {
  std::optional<Clock::time_point> next = store_.deadline();
  const auto logs = attempt_.logs ? attempt_.logs->deadline() : std::nullopt;
  const auto input = attempt_.input ? attempt_.input->deadline() : std::nullopt;
  const auto output = alive_ == 0 ? output_over_ : std::nullopt;
  for (const auto& limit :
       {logs, input, output, echo_over_, start_limit_, job_limit_, hangs_.deadline(), stage_over_})
    if (limit && (!next || *limit < *next))
      next = limit;
  if (!next)
    return -1;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(*next - Clock::now()).count();
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, 1'000'000'000));
}

void Supervisor::on_event(std::uint64_t about, std::uint32_t events) {
  const std::size_t i = about & 0xffffffff;
  switch (static_cast<About>(about >> 32)) {
  case About::news:
    return on_news();
  case About::logs:
    return attempt_.logs->turn();
  case About::input:
    return attempt_.input->turn();
  case About::guardian:
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, guardian_->pidfd(), nullptr);
    return watch_guardian();
  case About::channel:
    if ((events & EPOLLOUT) != 0)
      flush_outbox(i);
    return read_channel(i);
  case About::process:
    return;
  }
}

/// Signals, or the stop token.
void Supervisor::on_news() {
  const Interrupts::News news = attempt_.interrupts.take();
  if (news.children) {
    std::vector<pid_t> ranks;
    for (const Member& member : members_)
      ranks.push_back(member.child.pid);
    reap_strangers(ranks);
  }
  pass_on(news.forward);
  if (news.suspend)
    suspend();
  if (news.stops == 0 && !news.token)
    return;
  if (stage_ != Stage::running || alive_ == 0) {
    if (news.stops > 0) { // a second signal: at once
      kill();
      output_over_ = Clock::now();
    }
    return;
  }
  report_.stopped = true;
  report_.signal = news.latest;
  stop(news.stops > 0 ? fmt::format("stopped by {}", to_string(ExitStatus::signaled(news.latest)))
                      : "stopped by its stop token");
  if (news.stops > 1)
    kill();
}

/// To the rank's own process only: what it started may not know the signal, and would die of it.
void Supervisor::pass_on(const std::vector<int>& signals) {
  for (const int signal : signals)
    for (const Member& member : members_)
      if (!member.ended)
        pidfd_signal(member.child.pidfd.get(), signal);
}

/// Ctrl-Z: the ranks are in process groups of their own, so they are stopped, and continued, here.
void Supervisor::suspend() {
  const auto to_all = [this](int signal) {
    for (const Member& member : members_)
      if (!member.ended)
        ::kill(-member.child.pid, signal);
  };
  to_all(SIGSTOP);
  ::kill(::getpid(), SIGSTOP);
  to_all(SIGCONT);
  hangs_.resume();
}

void Supervisor::read_channel(std::size_t i) {
  Member& member = members_[i];
  while (member.child.control) {
    bool closed = false;
    auto message = receive_message(member.child.control.get(), false, closed);
    if (closed) {
      ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, member.child.control.get(), nullptr);
      member.child.control.reset();
      store_.forget(i);
    }
    if (!message)
      return;
    if (message->kind == Kind::store_request) {
      store_.handle(i, unpack<StoreRequest>(message->body), Clock::now());
    } else if (message->kind == Kind::crash) {
      member.crash = to_crash(message->body);
    } else if (message->kind == Kind::failure && !member.failure) {
      member.failure = unpack<Failure>(message->body);
      if (attempt_.part != Part::program) // a program may still end well
        (member.failure->peer_lost ? echoes_ : suspects_).push_back(i);
    }
  }
}

/// Never blocks: what the channel does not take waits in the outbox.
void Supervisor::send(std::size_t i, Kind kind, std::string body) {
  Member& member = members_[i];
  if (!member.child.control)
    return;
  if (member.outbox.empty() &&
      send_message(member.child.control.get(), kind, body, false) != Sent::later)
    return;
  member.outbox.emplace_back(kind, std::move(body));
  epoll_event event{};
  event.events = EPOLLIN | EPOLLOUT;
  event.data.u64 = tag(About::channel, i);
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, member.child.control.get(), &event);
}

void Supervisor::flush_outbox(std::size_t i) {
  Member& member = members_[i];
  while (!member.outbox.empty()) {
    const auto& [kind, body] = member.outbox.front();
    if (send_message(member.child.control.get(), kind, body, false) == Sent::later)
      return;
    member.outbox.pop_front();
  }
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = tag(About::channel, i);
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, member.child.control.get(), &event);
}

/// The rank's process has ended. Its group is killed while its number cannot be used again.
void Supervisor::reap(std::size_t i) {
  Member& member = members_[i];
  if (member.ended)
    return;
  read_channel(i);
  siginfo_t info;
  const bool ours = wait_pidfd(member.child.pidfd.get(), info, WNOHANG | WNOWAIT);
  if (ours && info.si_pid == 0)
    return; // it was not its end
  const pid_t pid = member.child.pid;
  ::kill(-pid, SIGKILL);
  guardian_->unwatch(pid);
  if (ours)
    wait_pidfd(member.child.pidfd.get(), info, WNOHANG);
  else
    report(i).hint = "its exit status is lost: another part of this program reaped it";
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, member.child.pidfd.get(), nullptr);
  member.child.pidfd.reset();
  member.ended = true;
  --alive_;
  if (attempt_.logs)
    attempt_.logs->rank_ended(i);
  if (attempt_.input)
    attempt_.input->rank_ended(i);
  if (alive_ == 0 && stage_ != Stage::running && report_.stopped)
    output_over_ = Clock::now() + console_patience;
  describe_end(i, ours ? exit_status(info) : ExitStatus::exited(255));
}

void Supervisor::describe_end(std::size_t i, ExitStatus status) {
  RankReport& rank = report(i);
  const Member& member = members_[i];
  const bool program = attempt_.part == Part::program;
  rank.ended = Clock::now() - began_;
  rank.ready = slot(i).phase.load() >= Phase::running ||
               (program && rank.ended - rank.started >= options_.ready_after);
  const bool first = report_.first == static_cast<int>(i);
  if (!first) // the first failure was described when it was found
    rank.phase = describe(slot(i));
  rank.status = member.failure && !program ? ExitStatus::exited(1) : status;
  const bool whole =
      status.success() && (program || (!member.failure && Reader::complete(rank.result)));
  if (whole) {
    rank.outcome = Outcome::succeeded;
    return;
  }
  take_failure(i);
  if (first)
    return;
  rank.outcome = Outcome::victim; // until it is judged
  if (status.success() && !member.failure)
    rank.message = "it ended before its function returned";
  if (attempt_.logs)
    rank.log_tail = attempt_.logs->tail(i); // hints are found there
  attempt_.diagnosis.explain(rank, i, stage_ != Stage::running);
  if (stage_ == Stage::running && (program || !member.failure))
    (member.failure && member.failure->peer_lost ? echoes_ : suspects_).push_back(i);
}

/// What the rank said of its own failure.
void Supervisor::take_failure(std::size_t i) {
  RankReport& rank = report(i);
  const Member& member = members_[i];
  if (!rank.exception_type.empty() || !rank.message.empty())
    return;
  if (member.failure) {
    rank.exception_type = member.failure->type;
    rank.message = member.failure->message;
  } else if (member.crash) {
    rank.message = circumstances(member.crash->record);
  }
}

/// Picks the first failure among those of this turn: a death by signal before an exit, and any of
/// them before a rank that only says it lost a peer.
void Supervisor::judge() {
  if (stage_ != Stage::running)
    return;
  const auto by_signal = [&](std::size_t i) {
    return members_[i].ended && report(i).status.signal().has_value();
  };
  if (!suspects_.empty()) {
    const auto killed = std::find_if(suspects_.begin(), suspects_.end(), by_signal);
    return declare_first(killed != suspects_.end() ? *killed : suspects_.front());
  }
  if (!echoes_.empty() && !echo_over_)
    echo_over_ = Clock::now() + echo_patience;
  if (!echoes_.empty() && (alive_ == 0 || Clock::now() >= *echo_over_))
    declare_first(echoes_.front());
}

void Supervisor::declare_first(std::size_t i) {
  RankReport& rank = report(i);
  report_.first = static_cast<int>(i);
  rank.outcome = Outcome::failed;
  if (!members_[i].ended) { // it has told of its failure, and is about to end
    rank.phase = describe(slot(i));
    rank.status = ExitStatus::exited(1);
    rank.ended = Clock::now() - began_;
    take_failure(i);
  }
  try {
    if (options_.on_failure)
      options_.on_failure(rank);
  } catch (...) {
    callback_error_ = std::current_exception(); // for the caller, once all ranks have ended
  }
  stop(to_line(rank));
}

void Supervisor::stop(const std::string& why) {
  report_.reason = why;
  if (!report_.first && options_.on_note)
    options_.on_note(why + "; stopping the ranks");
  start_limit_.reset();
  job_limit_.reset();
  hangs_.stop();
  echo_over_.reset();
  if (alive_ == 0) {
    stage_ = Stage::killing;
    return;
  }
  for (std::size_t i = 0; i < members_.size(); ++i)
    send(i, Kind::peer_lost, why);
  store_.close();
  terminate();
}

void Supervisor::terminate() {
  stage_ = Stage::terminating;
  stage_over_ = Clock::now() + options_.grace;
  for (const Member& member : members_) {
    if (member.ended || member.failure)
      continue; // a rank that reported its failure is leaving by itself
    ::kill(-member.child.pid, SIGTERM);
    ::kill(-member.child.pid, SIGCONT); // a stopped process does not see TERM
  }
  if (options_.grace <= std::chrono::milliseconds::zero())
    kill();
}

void Supervisor::kill() {
  stage_ = Stage::killing;
  stage_over_ = Clock::now() + dies_after_kill_within;
  for (const Member& member : members_)
    if (!member.ended) {
      ::kill(-member.child.pid, SIGKILL);
      pidfd_signal(member.child.pidfd.get(), SIGKILL);
    }
}

/// Even SIGKILL does not end a process that the kernel holds. Tell, and leave it.
void Supervisor::give_up() {
  for (std::size_t i = 0; i < members_.size(); ++i) {
    if (members_[i].ended)
      continue;
    report(i).outcome = Outcome::victim;
    report(i).status = ExitStatus::signaled(SIGKILL);
    report(i).hint = fmt::format("it is still there {} s after SIGKILL: {}",
                                 dies_after_kill_within.count(),
                                 kernel_state(members_[i].child.pid));
    members_[i].ended = true;
    --alive_;
  }
}

std::vector<std::size_t> Supervisor::running() const {
  std::vector<std::size_t> all;
  for (std::size_t i = 0; i < members_.size(); ++i)
    if (!members_[i].ended)
      all.push_back(i);
  return all;
}

std::vector<std::size_t> Supervisor::not_started() const {
  std::vector<std::size_t> late = running();
  std::erase_if(late, [&](std::size_t i) { return slot(i).phase.load() >= Phase::running; });
  return late;
}

/// "rank 1 (pid 4242, starting), rank 3 (pid 4244, running)"
std::string Supervisor::list(const std::vector<std::size_t>& members) const {
  std::string text;
  for (const std::size_t i : members) {
    const RankReport& rank = report_.ranks[i];
    const std::string doing = describe(slot(i));
    text += fmt::format("{}rank {} (pid {}{}{})",
                        text.empty() ? "" : ", ",
                        rank.rank,
                        rank.pid,
                        doing.empty() ? "" : ", ",
                        doing);
  }
  return text;
}

void Supervisor::on_time(Clock::time_point now) {
  store_.expire(now);
  if (attempt_.logs && attempt_.logs->deadline() && *attempt_.logs->deadline() <= now)
    attempt_.logs->turn();
  if (attempt_.input && attempt_.input->deadline() && *attempt_.input->deadline() <= now)
    attempt_.input->turn();
  if (alive_ == 0) {
    if (attempt_.logs && output_over_ && now >= *output_over_) {
      attempt_.logs->give_up_console();
      output_over_.reset();
    }
    return;
  }
  if (start_limit_ && now >= *start_limit_)
    check_start();
  if (job_limit_ && now >= *job_limit_) {
    report_.timed_out = true;
    stop(fmt::format(
        "the job did not end within {} ms: {}", options_.timeout->count(), list(running())));
  }
  if (hangs_.deadline() && now >= *hangs_.deadline())
    check_progress(now);
  if (stage_over_ && now >= *stage_over_)
    stage_ == Stage::terminating ? kill() : give_up();
}

void Supervisor::check_start() {
  start_limit_.reset();
  const auto late = not_started();
  if (late.empty())
    return;
  report_.timed_out = true;
  stop(fmt::format("not all functions were entered within {} ms: {}",
                   options_.start_timeout.count(),
                   list(late)));
}

/// Ends the job if no rank has made progress for the hang timeout.
void Supervisor::check_progress(Clock::time_point now) {
  const auto ranks = running();
  if (hangs_.is_blind(ranks)) {
    hangs_.stop();
    report_.notes.push_back(
        "the hang timeout had no effect: the ranks' program does not link muster, "
        "so whether it makes progress is not known");
    return;
  }
  const auto verdict = hangs_.check(ranks, now);
  if (!verdict)
    return;
  const auto& [behind, waiting] = *verdict;
  constexpr std::size_t most_stacks = 4;
  for (std::size_t k = 0; k < std::min(behind.size(), most_stacks); ++k)
    report(behind[k]).backtrace = Backtrace(stack_of(report(behind[k]).pid));
  const char* alone = behind.size() == 1 ? "hangs" : "all stand at the same place";
  const char* late = behind.size() == 1 ? "is behind; waiting: " : "are behind; waiting: ";
  report_.timed_out = true;
  stop(fmt::format("no rank has made progress for {} s: {} {}{}",
                   std::chrono::duration<double>(*options_.hang_timeout).count(),
                   list(behind),
                   waiting.empty() ? alone : late,
                   list(waiting)));
}

namespace {

std::string kernel_state(pid_t pid) {
  const auto first_line = [&](const char* file) {
    std::string line(256, '\0');
    const Fd fd(::open(fmt::format("/proc/{}/{}", pid, file).c_str(), O_RDONLY | O_CLOEXEC));
    const ssize_t size = ::read(fd.get(), line.data(), line.size());
    line.resize(size > 0 ? static_cast<std::size_t>(size) : 0);
    return line;
  };
  const std::string stat = first_line("stat");
  const auto end_of_name = stat.rfind(')');
  return fmt::format("state {}, waiting in {}",
                     end_of_name + 2 < stat.size() ? stat[end_of_name + 2] : '?',
                     first_line("wchan"));
}

} // namespace

} // namespace muster::process
