#include "log_pump.hpp"

#include <muster/launch/error.hpp>

#include <algorithm>
#include <cerrno>
#include <cstdlib>

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>

#include <fmt/format.h>

#include "pipe_holder.hpp"
#include "sys.hpp"

namespace muster::process {

namespace {

constexpr std::size_t read_bytes = 64 * 1024;
constexpr std::size_t flushed_from_bytes = 64 * 1024;
constexpr std::size_t most_unfinished_bytes = 8 * 1024 * 1024;
constexpr auto holders_time = std::chrono::milliseconds(500);

constexpr std::uint64_t console_tag = std::uint64_t{1} << 32;

std::string absolute(const std::string& path) {
  if (path.starts_with('/'))
    return path;
  const std::unique_ptr<char, decltype([](char* text) { std::free(text); })> here(
      ::getcwd(nullptr, 0));
  return here != nullptr ? fmt::format("{}/{}", here.get(), path) : path;
}

bool is_due(const std::optional<LogPump::Clock::time_point>& time, LogPump::Clock::time_point now) {
  return time && *time <= now;
}

} // namespace

LogPump::LogPump(const LogOptions& options,
                 const std::string& role,
                 int attempt,
                 const std::vector<RankSpec>& ranks,
                 int out,
                 int err)
    : drop_when_full_(options.drop_when_full),
      tail_lines_(options.tail_lines),
      buffer_(read_bytes) {
  open_consoles(out, err);
  epoll_ = Fd(sys::checked("epoll_create1", [] { return ::epoll_create1(EPOLL_CLOEXEC); }));
  const LogPlan plan(options, role, ranks);
  if (plan.any_file())
    directory_ =
        options.directory.empty() ? make_temporary_log_directory() : absolute(options.directory);
  ranks_.reserve(ranks.size());
  for (const RankSpec& spec : ranks)
    add_rank(plan, options, spec, attempt);
}

void LogPump::open_consoles(int out, int err) {
  consoles_.push_back(std::make_unique<Console>(out, stream_names[0]));
  auto second = std::make_unique<Console>(err, stream_names[1]);
  if (consoles_[0]->is_open() && second->is_same_file_as(*consoles_[0]))
    consoles_[0]->share_with(*second);
  else
    consoles_.push_back(std::move(second));
  watched_.resize(consoles_.size());
}

void LogPump::add_rank(const LogPlan& plan,
                       const LogOptions& options,
                       const RankSpec& spec,
                       int attempt) {
  Rank& rank = ranks_.emplace_back();
  rank.rank = spec.rank;
  const std::string folder = fmt::format("{}/attempt_{}/{}", directory_, attempt, spec.rank);
  if (plan.to_file(spec, 0) || plan.to_file(spec, 1))
    make_log_directory(folder);
  for (std::size_t stream = 0; stream < rank.pipes.size(); ++stream) {
    Pipe& pipe = rank.pipes[stream];
    if (plan.to_file(spec, stream))
      pipe.file.emplace(fmt::format("{}/{}.log", folder, stream_names[stream]),
                        options.file_limit_bytes);
    if (plan.to_console(spec, stream)) {
      pipe.console = consoles_[std::min(stream, consoles_.size() - 1)].get();
      if (!plan.raw())
        pipe.lines.emplace(*pipe.console,
                           plan.prefix(spec, stream, pipe.console->is_terminal()),
                           drop_when_full_ ? LineWriter::WhenFull::drop
                                           : LineWriter::WhenFull::wait);
    }
    open_pipe(rank, stream);
  }
}

void LogPump::open_pipe(Rank& rank, std::size_t stream) {
  Pipe& pipe = rank.pipes.at(stream);
  int ends[2] = {-1, -1};
  sys::checked(fmt::format("the pipe for {} of rank {} (many ranks may need a higher limit on open "
                           "files, ulimit -n)",
                           stream_names.at(stream),
                           rank.rank),
               [&] { return ::pipe2(ends, O_CLOEXEC); });
  pipe.read = Fd(ends[0]);
  pipe.write = Fd(ends[1]);
  ::fcntl(pipe.read.get(), F_SETFL, O_NONBLOCK);
  watch(pipe.read.get(), 2 * (ranks_.size() - 1) + stream, EPOLLIN);
}

void LogPump::close_child_ends() {
  for (Rank& rank : ranks_)
    for (Pipe& pipe : rank.pipes)
      pipe.write.reset();
}

std::vector<int> LogPump::fds() const {
  std::vector<int> all = {epoll_.get()};
  for (const auto& console : consoles_)
    all.push_back(console->fd());
  for (const Rank& rank : ranks_)
    for (const Pipe& pipe : rank.pipes)
      for (const int fd : {pipe.read.get(), pipe.write.get(), pipe.file ? pipe.file->fd() : -1})
        all.push_back(fd);
  std::erase(all, -1);
  return all;
}

void LogPump::watch(int fd, std::uint64_t tag, std::uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = tag;
  sys::checked("epoll_ctl", [&] { return ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event); });
}

/// Before each close: a descriptor that a forked process has, too, would go on to report events.
void LogPump::unwatch(int fd) noexcept { ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr); }

void LogPump::turn(Clock::time_point now) {
  std::array<epoll_event, 64> events;
  const int count = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), 0);
  const auto end = events.begin() + std::max(count, 0);
  for (auto event = events.begin(); event != end; ++event) // first, since it makes room
    if (event->data.u64 >= console_tag)
      flush(event->data.u64 - console_tag);
  for (auto event = events.begin(); event != end; ++event)
    if (event->data.u64 < console_tag)
      read_some(ranks_[event->data.u64 / 2], event->data.u64 % 2, now);
  on_time(now);
  flush_consoles();
  resume_pipes();
}

void LogPump::flush_consoles() {
  for (std::size_t k = 0; k < consoles_.size(); ++k)
    if (!consoles_[k]->blocked())
      flush(k);
}

bool LogPump::must_wait(const Pipe& pipe) const {
  return pipe.console != nullptr && pipe.console->full() && !drop_when_full_;
}

/// One read of a pipe; true if there was something.
bool LogPump::read_some(Rank& rank, std::size_t stream, Clock::time_point now) {
  Pipe& pipe = rank.pipes.at(stream);
  if (!pipe.read || pipe.paused)
    return false;
  if (must_wait(pipe)) {
    unwatch(pipe.read.get()); // or its end would be reported all the time
    pipe.paused = true;
    return false;
  }
  return take(rank, stream, now);
}

bool LogPump::take(Rank& rank, std::size_t stream, Clock::time_point now) {
  Pipe& pipe = rank.pipes.at(stream);
  const ssize_t count = ::read(pipe.read.get(), buffer_.data(), buffer_.size());
  if (count < 0)
    return false; // EAGAIN
  if (count == 0) {
    close_pipe(pipe);
    return false;
  }
  const auto size = static_cast<std::size_t>(count);
  if (pipe.ended) {
    pipe.owed_bytes -= std::min<std::uint64_t>(size, pipe.owed_bytes);
    limit_time(pipe, now);
  }
  const std::string_view bytes(buffer_.data(), size);
  rank.tail.add(stream, bytes);
  if (pipe.file)
    pipe.file->write(bytes);
  if (pipe.console != nullptr)
    show(pipe, bytes, now);
  return true;
}

void LogPump::show(Pipe& pipe, std::string_view bytes, Clock::time_point now) {
  if (pipe.lines)
    with_lines(pipe, [&](LineWriter& lines) { lines.add(bytes, now); });
  else
    pipe.console->append("", "", bytes);
  if (unfinished_bytes_ > most_unfinished_bytes)
    split_longest(now);
  for (std::size_t k = 0; k < consoles_.size(); ++k)
    if (!consoles_[k]->blocked() && consoles_[k]->pending_bytes() >= flushed_from_bytes)
      flush(k);
}

template <class F>
void LogPump::with_lines(Pipe& pipe, F change) {
  unfinished_bytes_ -= pipe.lines->unfinished_bytes();
  change(*pipe.lines);
  unfinished_bytes_ += pipe.lines->unfinished_bytes();
}

void LogPump::split_longest(Clock::time_point now) {
  Pipe* longest = nullptr;
  for (Rank& rank : ranks_)
    for (Pipe& pipe : rank.pipes)
      if (pipe.lines && (longest == nullptr ||
                         pipe.lines->unfinished_bytes() > longest->lines->unfinished_bytes()))
        longest = &pipe;
  if (longest != nullptr)
    with_lines(*longest, [&](LineWriter& lines) { lines.split(now); });
}

void LogPump::close_pipe(Pipe& pipe) {
  unwatch(pipe.read.get());
  pipe.read.reset();
  pipe.limit.reset();
  if (pipe.file)
    pipe.file->close();
  if (pipe.lines)
    with_lines(pipe, [](LineWriter& lines) { lines.finish(); });
}

void LogPump::rank_ended(std::size_t i, Clock::time_point now) {
  Rank& rank = ranks_[i];
  for (std::size_t stream = 0; stream < rank.pipes.size(); ++stream) {
    Pipe& pipe = rank.pipes[stream];
    if (!pipe.read)
      continue;
    int bytes = 0;
    ::ioctl(pipe.read.get(), FIONREAD, &bytes);
    pipe.owed_bytes = static_cast<std::uint64_t>(bytes);
    pipe.ended = true;
    limit_time(pipe, now);
    while (!pipe.limit && read_some(rank, stream, now)) {
    }
    read_some(rank, stream, now); // its end, unless somebody else holds it open
  }
  flush_consoles(); // no event may follow
}

/// Others that hold the pipe open have a little time, once everything of the rank has been read.
void LogPump::limit_time(Pipe& pipe, Clock::time_point now) {
  if (pipe.owed_bytes == 0 && !pipe.limit)
    pipe.limit = now + holders_time;
}

void LogPump::pass_limit(Rank& rank, Clock::time_point now) {
  std::string held;
  std::optional<std::string> holder;
  for (std::size_t stream = 0; stream < rank.pipes.size(); ++stream) {
    Pipe& pipe = rank.pipes[stream];
    if (!is_due(pipe.limit, now))
      continue;
    take(rank, stream, now);
    if (!pipe.read)
      continue; // there was nobody: its end had not been read yet
    if (!holder)
      holder = pipe_holder(pipe.read.get());
    held += (held.empty() ? "" : " and ") + std::string(stream_names[stream]);
    close_pipe(pipe);
  }
  if (!held.empty())
    notes_.push_back(fmt::format("rank {}: {} held its {} open {} ms after the rank's end; what it "
                                 "writes there from then on is lost",
                                 rank.rank,
                                 holder.value_or("another process"),
                                 held,
                                 holders_time.count()));
}

void LogPump::on_time(Clock::time_point now) {
  for (Rank& rank : ranks_) {
    pass_limit(rank, now);
    for (Pipe& pipe : rank.pipes)
      if (pipe.lines && !must_wait(pipe) && is_due(pipe.lines->deadline(), now))
        with_lines(pipe, [&](LineWriter& lines) { lines.split(now); });
  }
}

std::optional<LogPump::Clock::time_point> LogPump::deadline() const {
  std::optional<Clock::time_point> next;
  const auto consider = [&](const std::optional<Clock::time_point>& time) {
    if (time && (!next || *time < *next))
      next = time;
  };
  for (const Rank& rank : ranks_)
    for (const Pipe& pipe : rank.pipes) {
      consider(pipe.limit);
      if (pipe.lines && !must_wait(pipe))
        consider(pipe.lines->deadline());
    }
  return next;
}

void LogPump::flush(std::size_t k) {
  Console& console = *consoles_[k];
  if (watched_[k])
    unwatch(console.fd());
  console.flush();
  watched_[k] = console.blocked();
  if (watched_[k])
    watch(console.fd(), console_tag + k, EPOLLOUT);
}

void LogPump::resume_pipes() {
  for (std::size_t i = 0; i < ranks_.size(); ++i)
    for (std::size_t stream = 0; stream < ranks_[i].pipes.size(); ++stream) {
      Pipe& pipe = ranks_[i].pipes[stream];
      if (!pipe.paused || must_wait(pipe))
        continue;
      pipe.paused = false;
      if (pipe.read)
        watch(pipe.read.get(), 2 * i + stream, EPOLLIN);
    }
}

bool LogPump::idle() const {
  return std::all_of(consoles_.begin(),
                     consoles_.end(),
                     [](const auto& console) { return console->pending_bytes() == 0; }) &&
         std::all_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) {
           return !rank.pipes[0].read && !rank.pipes[1].read;
         });
}

void LogPump::give_up_console() {
  for (std::size_t k = 0; k < consoles_.size(); ++k) {
    if (watched_[k])
      unwatch(consoles_[k]->fd());
    watched_[k] = false;
    consoles_[k]->give_up();
  }
  resume_pipes();
}

std::vector<std::string> LogPump::files(std::size_t i) const {
  std::vector<std::string> paths;
  for (const Pipe& pipe : ranks_[i].pipes)
    if (pipe.file)
      paths.push_back(pipe.file->path());
  return paths;
}

bool LogPump::is_used(const Console& console) const {
  return std::any_of(ranks_.begin(), ranks_.end(), [&](const Rank& rank) {
    return rank.pipes[0].console == &console || rank.pipes[1].console == &console;
  });
}

std::vector<std::string> LogPump::notes() const {
  std::vector<std::string> all = notes_;
  for (const auto& console : consoles_)
    if (const auto note = is_used(*console) ? console->note() : std::nullopt)
      all.push_back(*note);
  for (const Rank& rank : ranks_)
    for (std::size_t stream = 0; stream < rank.pipes.size(); ++stream) {
      const Pipe& pipe = rank.pipes[stream];
      if (const auto note = pipe.file ? pipe.file->note() : std::nullopt)
        all.push_back(*note);
      if (const auto dropped = pipe.lines ? pipe.lines->dropped_lines() : 0; dropped > 0)
        all.push_back(
            fmt::format("rank {}: {} lines of its {} were left out, since the console was "
                        "not read fast enough",
                        rank.rank,
                        dropped,
                        stream_names[stream]));
    }
  return all;
}

} // namespace muster::process
