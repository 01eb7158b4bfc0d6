#include <algorithm>
#include <csignal>
#include <thread>

#include "catch.hpp"
#include "pipes.hpp"
#include "process/input_pump.hpp"

using muster::RankSet;
using muster::RankSpec;
using muster::process::Fd;
using muster::process::InputPump;
using namespace test;

namespace {

std::vector<RankSpec> make_ranks(int count) {
  std::vector<RankSpec> ranks(static_cast<std::size_t>(count));
  for (int i = 0; i < count; ++i)
    ranks[static_cast<std::size_t>(i)].rank = ranks[static_cast<std::size_t>(i)].local_rank = i;
  return ranks;
}

/// A pump that is fed through a pipe, and the ends that its ranks read from.
struct Feed {
  explicit Feed(const RankSet& fed, int count)
      : input(make_pipe()), pump(fed, make_ranks(count), input.read.get()) {
    for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i)
      ends.push_back(pump.child_end(i) < 0 ? Fd() : duplicate(pump.child_end(i)));
    pump.close_child_ends();
  }

  /// Pumps until `done` says so; false if that never happens.
  template <class F>
  bool pump_until(F done) {
    for (const auto limit = Clock::now() + patience; !done();) {
      if (Clock::now() > limit)
        return false;
      // As the supervisor does: a turn for an event, or at the deadline.
      pollfd ready{pump.fd(), POLLIN, 0};
      ::poll(&ready, 1, 1);
      const auto deadline = pump.deadline();
      if (ready.revents != 0 || (deadline && *deadline <= Clock::now()))
        pump.turn();
    }
    return true;
  }

  /// Pumps while there is something to do.
  void pump_all() {
    for (pollfd ready{pump.fd(), POLLIN, 0}; ::poll(&ready, 1, 0) > 0;)
      pump.turn();
  }

  PipeEnds input;
  InputPump pump;
  std::vector<Fd> ends;
};

} // namespace

TEST_CASE("a slow rank gets every byte of a long input once", "[input_pump]") {
  Feed feed(RankSet::only(0), 1);
  const std::string sent = noise(1'400'000);
  std::thread writer([&] {
    write_all(feed.input.write.get(), sent);
    feed.input.write.reset();
  });
  std::string received;
  char buffer[3000];
  const bool ended = feed.pump_until([&] {
    pollfd readable{feed.ends[0].get(), POLLIN, 0};
    if (::poll(&readable, 1, 0) <= 0)
      return false;
    const ssize_t count = ::read(feed.ends[0].get(), buffer, sizeof buffer);
    received.append(buffer, static_cast<std::size_t>(std::max<ssize_t>(count, 0)));
    return count == 0;
  });
  writer.join();
  CHECK(ended);
  CHECK(received == sent);
}

TEST_CASE("each of two ranks gets the whole input", "[input_pump]") {
  Feed feed(RankSet::all(), 2);
  const std::string sent = noise(700'000);
  std::thread writer([&] {
    write_all(feed.input.write.get(), sent);
    feed.input.write.reset();
  });
  std::string received[2];
  std::vector<std::thread> readers;
  for (std::size_t i = 0; i < 2; ++i)
    readers.emplace_back([&, i] { received[i] = read_to_end(feed.ends[i].get()); });
  CHECK(feed.pump_until([&] { return feed.pump.fds().size() == 1; }));
  writer.join();
  for (std::thread& reader : readers)
    reader.join();
  CHECK(received[0] == sent);
  CHECK(received[1] == sent);
}

TEST_CASE("the slowest rank sets the pace", "[input_pump]") {
  Feed feed(RankSet::all(), 2);
  std::thread writer([&] {
    write_all(feed.input.write.get(), noise(1'000'000));
    feed.input.write.reset();
  });
  std::string fast;
  const auto read_fast = [&] { fast += read_available(feed.ends[0].get()); };
  // Its pipe takes 64 KiB, and the pump holds as much.
  CHECK(feed.pump_until([&] {
    read_fast();
    return fast.size() == 128 * 1024;
  }));
  feed.pump_all();
  read_fast();
  CHECK(fast.size() == 128 * 1024);
  std::thread slow([&] { read_to_end(feed.ends[1].get()); });
  CHECK(feed.pump_until([&] {
    read_fast();
    return fast.size() == 1'000'000;
  }));
  feed.pump_until([&] { return feed.pump.fds().size() == 1; });
  writer.join();
  slow.join();
}

TEST_CASE("a rank that closes its input is dropped and the others are fed", "[input_pump]") {
  Feed feed(RankSet::all(), 2);
  feed.ends[0].reset();
  write_all(feed.input.write.get(), "first\n");
  feed.pump_all();
  write_all(feed.input.write.get(), "second\n");
  feed.pump_all();
  CHECK(read_available(feed.ends[1].get()) == "first\nsecond\n");
  feed.pump.rank_ended(1);
  CHECK(feed.pump.fds().size() == 1); // nobody is left: the input is not read any more
  write_all(feed.input.write.get(), "for the next program\n");
  feed.pump_all();
  CHECK(read_available(feed.input.read.get()) == "for the next program\n");
}

TEST_CASE("the end of the input is the end of each rank's", "[input_pump]") {
  Feed feed(RankSet::parse("0,2", ""), 3);
  CHECK_FALSE(feed.ends[1]); // not fed
  write_all(feed.input.write.get(), "abc");
  feed.input.write.reset();
  feed.pump_all();
  CHECK(read_to_end(feed.ends[0].get()) == "abc");
  CHECK(read_to_end(feed.ends[2].get()) == "abc");
}

TEST_CASE("an input that is a file is read by each rank from where it stands", "[input_pump]") {
  const TemporaryDirectory directory;
  const std::string path = directory.path() + "/input";
  std::ofstream(path) << "header\nbody\n";
  const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  REQUIRE(::lseek(file.get(), 7, SEEK_SET) == 7);
  const InputPump pump(RankSet::all(), make_ranks(2), file.get());
  CHECK(read_to_end(pump.child_end(0)) == "body\n");
  CHECK(read_to_end(pump.child_end(1)) == "body\n");
  CHECK(::lseek(file.get(), 0, SEEK_CUR) == 7);
}

TEST_CASE("an input that is empty or closed ends at once", "[input_pump]") {
  const Fd null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  const bool closed = GENERATE(false, true);
  InputPump pump(RankSet::only(0), make_ranks(1), closed ? -1 : null.get());
  const Fd end = duplicate(pump.child_end(0));
  pump.close_child_ends();
  CHECK(read_to_end(end.get()).empty());
  pump.turn();
  pump.rank_ended(0);
}

TEST_CASE("without fed ranks the input is not touched", "[input_pump]") {
  Feed feed({}, 2);
  write_all(feed.input.write.get(), "x");
  feed.pump_all();
  CHECK(read_available(feed.input.read.get()) == "x");
  CHECK(feed.pump.fds().size() == 1);
}

TEST_CASE("feeding a rank that has gone raises no signal and keeps its disposition",
          "[input_pump]") {
  REQUIRE(std::signal(SIGPIPE, SIG_DFL) == SIG_DFL);
  Feed feed(RankSet::only(0), 1);
  feed.ends[0].reset();
  write_all(feed.input.write.get(), "x");
  feed.pump_all();
  CHECK(std::signal(SIGPIPE, SIG_DFL) == SIG_DFL);
  sigset_t mask;
  ::pthread_sigmask(SIG_BLOCK, nullptr, &mask);
  CHECK(::sigismember(&mask, SIGPIPE) == 0);
}
