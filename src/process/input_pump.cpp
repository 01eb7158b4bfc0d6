#include "input_pump.hpp"

#include <algorithm>
#include <array>
#include <cerrno>

#include <fcntl.h>
#include <sys/epoll.h>

#include <fmt/format.h>

#include "quiet_write.hpp"
#include "sys.hpp"

namespace muster::process {

namespace {

constexpr std::size_t read_bytes = 64 * 1024;
constexpr auto look_again_after = std::chrono::seconds(1);
constexpr std::uint64_t source_tag = ~std::uint64_t{0};

/// A description of its own for the file behind `source`, at the same place. Throws SystemError.
Fd reopen(int source) {
  Fd own(sys::checked("opening the file on standard input again for a rank", [&] {
    return ::open(fmt::format("/proc/self/fd/{}", source).c_str(), O_RDONLY | O_CLOEXEC);
  }));
  if (const off_t place = ::lseek(source, 0, SEEK_CUR); place > 0)
    sys::checked("finding a rank's place in the file on standard input",
                 [&] { return ::lseek(own.get(), place, SEEK_SET); });
  return own;
}

Fd copy(int fd) {
  return Fd(sys::checked("keeping a copy of standard input",
                         [&] { return ::fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1); }));
}

} // namespace

InputPump::InputPump(const RankSet& fed, const std::vector<RankSpec>& ranks, int source)
    : epoll_(sys::checked("epoll_create1", [] { return ::epoll_create1(EPOLL_CLOEXEC); })),
      ranks_(ranks.size()) {
  std::vector<Rank*> readers;
  for (std::size_t i = 0; i < ranks.size(); ++i)
    if (fed.contains(ranks[i].local_rank))
      readers.push_back(&ranks_[i]);
  if (readers.empty())
    return;
  if (::fcntl(source, F_GETFD) >= 0)
    source_ = copy(source);
  if (source_ && !watch_source(true)) { // a file, for which epoll has no use
    for (Rank* rank : readers)
      rank->child = give_file(readers.size() == 1);
    source_.reset();
    return;
  }
  for (Rank* rank : readers)
    make_pipe(*rank);
  if (source_) {
    is_terminal_ = ::isatty(source_.get()) == 1;
    buffer_.resize(read_bytes);
  }
}

/// The only reader may have the launcher's own description where another one is not to be had, such
/// as of another user's file.
Fd InputPump::give_file(bool only_reader) const {
  try {
    return reopen(source_.get());
  } catch (const SystemError&) {
    if (!only_reader)
      throw;
    return copy(source_.get());
  }
}

/// Without a source the rank is at the end of its input at once.
void InputPump::make_pipe(Rank& rank) {
  int ends[2] = {-1, -1};
  sys::checked("the pipe for a rank's standard input", [&] { return ::pipe2(ends, O_CLOEXEC); });
  rank.child = Fd(ends[0]);
  Fd write(ends[1]);
  if (!source_)
    return;
  ::fcntl(write.get(), F_SETFL, O_NONBLOCK);
  rank.write = std::move(write);
}

void InputPump::close_child_ends() {
  for (Rank& rank : ranks_)
    rank.child.reset();
}

std::vector<int> InputPump::fds() const {
  std::vector<int> all = {epoll_.get(), source_.get()};
  for (const Rank& rank : ranks_)
    all.insert(all.end(), {rank.child.get(), rank.write.get()});
  std::erase(all, -1);
  return all;
}

void InputPump::turn(Clock::time_point now) {
  std::array<epoll_event, 64> events;
  const int count = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), 0);
  if (look_again_ && *look_again_ <= now)
    look_again_.reset();
  for (int i = 0; i < count; ++i) {
    const std::uint64_t tag = events.at(static_cast<std::size_t>(i)).data.u64;
    if (tag != source_tag)
      feed(tag);
    else if (belongs_to_others())
      look_again_ = now + look_again_after;
    else
      read_source();
  }
  settle();
}

/// Somebody else is in the terminal's foreground.
bool InputPump::belongs_to_others() const noexcept {
  if (!is_terminal_)
    return false;
  const pid_t foreground = ::tcgetpgrp(source_.get());
  return foreground > 0 && foreground != ::getpgrp();
}

void InputPump::read_source() {
  const ssize_t count = ::read(source_.get(), buffer_.data(), buffer_.size());
  if (count < 0 && (errno == EAGAIN || errno == EINTR))
    return;
  if (count <= 0) {
    end();
    return;
  }
  size_ = static_cast<std::size_t>(count);
  for (Rank& rank : ranks_)
    rank.taken = 0;
  for (std::size_t i = 0; i < ranks_.size(); ++i)
    feed(i);
}

/// Writes as much as the rank's pipe takes.
void InputPump::feed(std::size_t i) {
  Rank& rank = ranks_[i];
  while (rank.write && rank.taken < size_) {
    const ssize_t count =
        write_quietly(rank.write.get(), {buffer_.data() + rank.taken, size_ - rank.taken});
    if (count >= 0)
      rank.taken += static_cast<std::size_t>(count);
    else if (errno == EAGAIN)
      return watch_rank(i, true);
    else
      rank_ended(i); // it has closed its standard input
  }
  watch_rank(i, false);
}

void InputPump::rank_ended(std::size_t i) {
  watch_rank(i, false);
  ranks_[i].write.reset();
  settle();
}

/// The input has ended.
void InputPump::end() {
  for (std::size_t i = 0; i < ranks_.size(); ++i)
    rank_ended(i);
}

/// Watches the source if somebody waits for what it says, and gives it up when nobody is left.
void InputPump::settle() {
  if (!source_)
    return;
  bool any = false;
  bool all_taken = true;
  for (const Rank& rank : ranks_) {
    any = any || rank.write;
    all_taken = all_taken && (!rank.write || rank.taken == size_);
  }
  watch_source(any && all_taken && !look_again_);
  if (!any)
    source_.reset();
}

/// False if epoll does not take it.
bool InputPump::watch_source(bool wanted) {
  if (wanted == source_watched_)
    return true;
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = source_tag;
  const int change = wanted ? EPOLL_CTL_ADD : EPOLL_CTL_DEL;
  const int result =
      sys::call([&] { return ::epoll_ctl(epoll_.get(), change, source_.get(), &event); });
  if (result != 0 && errno != EPERM)
    throw SystemError("watching standard input", errno);
  source_watched_ = wanted && result == 0;
  return result == 0;
}

void InputPump::watch_rank(std::size_t i, bool wanted) {
  Rank& rank = ranks_[i];
  if (wanted == rank.watched)
    return;
  epoll_event event{};
  event.events = EPOLLOUT;
  event.data.u64 = i;
  const int change = wanted ? EPOLL_CTL_ADD : EPOLL_CTL_DEL;
  sys::checked("watching a rank's standard input",
               [&] { return ::epoll_ctl(epoll_.get(), change, rank.write.get(), &event); });
  rank.watched = wanted;
}

} // namespace muster::process
