#include <muster/launch/error.hpp>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <set>
#include <sstream>
#include <thread>

#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <fmt/format.h>

#include "catch.hpp"
#include "pipes.hpp"
#include "process/log_pump.hpp"
#include "process/sys.hpp"

using muster::LogOptions;
using muster::RankSet;
using muster::RankSpec;
using muster::StreamMap;
using muster::Streams;
using muster::process::Fd;
using muster::process::LineWriter;
using muster::process::LogFile;
using muster::process::LogPump;
using muster::process::Tail;
namespace sys = muster::process::sys;
using namespace test;

namespace {

std::vector<RankSpec> make_ranks(int count, int first = 0) {
  std::vector<RankSpec> ranks(static_cast<std::size_t>(count));
  for (int i = 0; i < count; ++i) {
    ranks[static_cast<std::size_t>(i)].rank = first + i;
    ranks[static_cast<std::size_t>(i)].local_rank = i;
  }
  return ranks;
}

/// A pump, the ends that its ranks write to, and what has come to its consoles.
class Job {
public:
  Job(const LogOptions& options, int count) : Job(options, make_ranks(count), -1, -1) {}
  /// With consoles other than pipes.
  Job(const LogOptions& options, const std::vector<RankSpec>& ranks, int console, int error_console)
      : out_(make_pipe()),
        err_(make_pipe()),
        pump(options,
             "trainer",
             0,
             ranks,
             console < 0 ? out_.write.get() : console,
             error_console < 0 ? err_.write.get() : error_console) {
    for (std::size_t i = 0; i < ranks.size(); ++i)
      for (const int stream : {1, 2})
        ends_.push_back(duplicate(pump.child_end(i, stream)));
    pump.close_child_ends();
  }

  int end(std::size_t i, int stream = 1) const {
    return ends_[2 * i + static_cast<std::size_t>(stream) - 1].get();
  }

  /// Writes for a rank, and pumps what is there.
  void say(std::size_t i, std::string_view bytes, int stream = 1) {
    REQUIRE(write_all(end(i, stream), bytes));
    pump_all();
  }

  /// The rank closes its ends and is reaped.
  void end_rank(std::size_t i) {
    ends_[2 * i].reset();
    ends_[2 * i + 1].reset();
    pump.rank_ended(i);
  }

  /// Pumps until `done` says so; false if that never happens.
  template <class F>
  bool pump_until(F done) {
    for (const auto limit = Clock::now() + patience; !done();) {
      if (Clock::now() > limit)
        return false;
      // As the supervisor does: a turn for an event, or at the deadline.
      pollfd ready[] = {{pump.fd(), POLLIN, 0}, {out_.read.get(), POLLIN, 0}};
      ::poll(ready, 2, 1);
      const auto deadline = pump.deadline();
      if (ready[0].revents != 0 || (deadline && *deadline <= Clock::now()))
        pump.turn();
      if (reading)
        read_consoles();
    }
    return true;
  }

  /// Pumps while there is something to do.
  void pump_all() {
    for (pollfd ready{pump.fd(), POLLIN, 0}; ::poll(&ready, 1, 0) > 0;) {
      pump.turn();
      if (reading)
        read_consoles();
    }
  }

  /// All ranks end.
  void finish() {
    for (std::size_t i = 0; i < ends_.size() / 2; ++i)
      end_rank(i);
    REQUIRE(pump_until([this] { return pump.idle(); }));
    read_consoles();
  }

  void read_consoles() {
    if (out_.read)
      out += read_available(out_.read.get());
    err += read_available(err_.read.get());
  }

  void close_console() { out_.read.reset(); }

private:
  PipeEnds out_;
  PipeEnds err_;
  std::vector<Fd> ends_;

public:
  LogPump pump;
  bool reading = true;
  std::string out;
  std::string err;
};

LogOptions in_directory(const TemporaryDirectory& directory) {
  LogOptions options;
  options.directory = directory.path();
  return options;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);)
    lines.push_back(line);
  return lines;
}

bool mentions(const std::vector<std::string>& notes, const std::string& text) {
  return std::any_of(notes.begin(), notes.end(), [&](const std::string& note) {
    return note.find(text) != std::string::npos;
  });
}

std::string every_byte() {
  std::string bytes;
  for (int byte = 0; byte < 256; ++byte)
    bytes += static_cast<char>(byte);
  return bytes;
}

} // namespace

TEST_CASE("all byte values reach files and a single rank's console as they are", "[log_pump]") {
  const TemporaryDirectory directory;
  Job job(in_directory(directory), 1);
  job.say(0, every_byte());
  job.say(0, every_byte(), 2);
  job.finish();
  CHECK(job.out == every_byte());
  CHECK(job.err == every_byte());
  CHECK(file_contents(directory.path() + "/attempt_0/0/stdout.log") == every_byte());
  CHECK(file_contents(directory.path() + "/attempt_0/0/stderr.log") == every_byte());
  CHECK(job.pump.notes().empty());
}

TEST_CASE("all byte values reach a console with prefixes as they are", "[log_pump]") {
  Job job({}, 2);
  std::string bytes = every_byte();
  std::erase(bytes, '\n');
  std::erase(bytes, '\r');
  job.say(1, bytes + "\n");
  CHECK(job.out == "[1] " + bytes + "\n");
}

TEST_CASE("a line that comes in two parts is written once it is whole", "[log_pump]") {
  Job job({}, 2);
  const std::string line = "a \xe2\x82\xac b\r\n";
  for (std::size_t split = 1; split < line.size(); ++split) {
    job.out.clear();
    job.say(0, line.substr(0, split));
    CHECK(job.out.empty());
    job.say(0, line.substr(split));
    CHECK(job.out == "[0] " + line);
  }
}

TEST_CASE("a line that is not finished in its time comes in marked pieces", "[log_pump]") {
  const TemporaryDirectory directory;
  LogOptions options = in_directory(directory);
  Job job(options, 2);
  job.say(0, "whole\nhalf");
  CHECK(job.out == "[0] whole\n");
  REQUIRE(job.pump.deadline());
  job.pump.turn(*job.pump.deadline() - std::chrono::milliseconds(1));
  job.read_consoles();
  CHECK(job.out == "[0] whole\n");
  job.pump.turn(*job.pump.deadline());
  CHECK_FALSE(job.pump.deadline());
  job.say(0, " and half\nnext\n");
  CHECK(job.out == "[0] whole\n[0] half\n[0] +  and half\n[0] next\n");
  CHECK(file_contents(directory.path() + "/attempt_0/0/stdout.log") ==
        "whole\nhalf and half\nnext\n");
}

TEST_CASE("a piece does not end within a character", "[log_pump]") {
  Job job({}, 2);
  job.say(0, "cost \xe2\x82");
  job.pump.turn(*job.pump.deadline());
  job.say(0, "\xac\n");
  CHECK(job.out == "[0] cost \n[0] + \xe2\x82\xac\n");
}

TEST_CASE("a progress bar is written as its segments end", "[log_pump]") {
  Job job({}, 2);
  job.say(0, "10%\r20%\r");
  CHECK(job.out == "[0] 10%\r"); // the second may become a line end of two bytes
  job.say(0, "\n30%\r");
  CHECK(job.out == "[0] 10%\r[0] 20%\r\n");
  job.pump.turn(*job.pump.deadline());
  job.read_consoles();
  CHECK(job.out == "[0] 10%\r[0] 20%\r\n[0] 30%\r");
  job.say(0, "40%\rdone\n");
  CHECK(job.out == "[0] 10%\r[0] 20%\r\n[0] 30%\r[0] 40%\r[0] done\n");
}

TEST_CASE("a prompt of a single rank appears at once", "[log_pump]") {
  Job job({}, 1);
  job.say(0, "name? ");
  CHECK(job.out == "name? ");
  CHECK_FALSE(job.pump.deadline());
  job.finish();
  CHECK(job.out == "name? ");
}

TEST_CASE("the last line gets its end on the console and not in the file", "[log_pump]") {
  const TemporaryDirectory directory;
  Job job(in_directory(directory), 2);
  job.say(0, "no end");
  job.say(1, "bar\r");
  job.finish();
  CHECK(job.out == "[0] no end\n[1] bar\r");
  CHECK(file_contents(directory.path() + "/attempt_0/0/stdout.log") == "no end");
}

TEST_CASE("a line of 2 MiB comes in pieces and a line of 1 MiB in one", "[log_pump]") {
  const TemporaryDirectory directory;
  Job job(in_directory(directory), 2);
  const std::size_t mib = LineWriter::longest_line;
  const std::string text = std::string(mib - 1, 'a') + "\n" + std::string(2 * mib, 'b') + "\nend\n";
  std::thread writer([&] { write_all(job.end(0), text); });
  CHECK(job.pump_until([&] { return job.out.ends_with("end\n"); }));
  writer.join();
  CHECK(job.out == "[0] " + std::string(mib - 1, 'a') + "\n[0] " + std::string(mib, 'b') +
                       "\n[0] + " + std::string(mib, 'b') + "\n[0] + \n[0] end\n");
  CHECK(file_contents(directory.path() + "/attempt_0/0/stdout.log") == text);
}

TEST_CASE("long unfinished lines of many ranks are split before they need much memory",
          "[log_pump]") {
  constexpr std::size_t count = 40;
  Job job({}, count);
  const std::string half(512 * 1024, 'x');
  std::atomic<bool> written = false;
  std::thread writer([&] {
    for (std::size_t i = 0; i < count; ++i)
      write_all(job.end(i), half);
    written = true;
  });
  const std::size_t all = count * half.size();
  CHECK(job.pump_until([&] { return written.load(); }));
  writer.join();
  job.pump_all();
  CHECK(job.out.size() > all - 10 * 1024 * 1024);
  job.finish();
  CHECK(std::count(job.out.begin(), job.out.end(), 'x') == static_cast<std::ptrdiff_t>(all));
}

TEST_CASE("ranks that flood both streams of one console lose and tear no line", "[log_pump]") {
  const PipeEnds console = make_pipe();
  const Fd same = duplicate(console.write.get());
  constexpr std::size_t count = 4;
  constexpr int lines = 5000;
  Job job({}, make_ranks(count), console.write.get(), same.get());
  std::vector<std::thread> writers;
  for (std::size_t i = 0; i < count; ++i)
    for (const int stream : {1, 2})
      writers.emplace_back([&job, i, stream] {
        for (int k = 0; k < lines; ++k)
          write_all(job.end(i, stream), fmt::format("{} {} {:>{}}\n", stream, k, '.', k % 200 + 1));
      });
  std::string text;
  const auto complete = [&] {
    text += read_available(console.read.get());
    return std::count(text.begin(), text.end(), '\n') == static_cast<int>(2 * count) * lines;
  };
  CHECK(job.pump_until(complete));
  for (std::thread& writer : writers)
    writer.join();
  int next[count][2] = {};
  bool exact = true;
  for (const std::string& line : lines_of(text)) {
    std::size_t rank = 0;
    std::size_t stream = 0;
    int k = -1;
    exact = exact && std::sscanf(line.c_str(), "[%zu] %zu %d", &rank, &stream, &k) == 3 &&
            rank < count && stream >= 1 && stream <= 2 && k == next[rank][stream - 1]++ &&
            line == fmt::format("[{}] {} {} {:>{}}", rank, stream, k, '.', k % 200 + 1);
  }
  CHECK(exact);
}

TEST_CASE("prefixes are made from a template in which other text stays", "[log_pump]") {
  LogOptions options;
  options.prefix = "${role_name}:${rank}/${local_rank}/${stream}${other} $ ${ ";
  Job job(options, make_ranks(2, 6), -1, -1);
  job.say(1, "x\n");
  job.say(1, "y\n", 2);
  CHECK(job.out == "trainer:7/1/stdout${other} $ ${ x\n");
  CHECK(job.err == "trainer:7/1/stderr${other} $ ${ y\n");
}

TEST_CASE("colours surround the prefix where they are asked for", "[log_pump]") {
  LogOptions options;
  options.color = true;
  Job job(options, 2);
  job.say(0, "x\n");
  job.say(1, "y\n");
  CHECK(job.out == "\x1b[36m[0] \x1b[0mx\n\x1b[33m[1] \x1b[0my\n");
}

TEST_CASE("redirects go to files, tees to both, and the rest to the console", "[log_pump]") {
  const TemporaryDirectory directory;
  LogOptions options = in_directory(directory);
  options.redirects = StreamMap::parse("0:1,1:3", "");
  options.tee = StreamMap::parse("1:2", "");
  options.console = RankSet::parse("0-1", "");
  Job job(options, 3);
  for (std::size_t i = 0; i < 3; ++i)
    for (const int stream : {1, 2})
      job.say(i, fmt::format("{}{}\n", i, stream), stream);
  job.finish();
  CHECK(job.out.empty());
  CHECK(job.err == "[0] 02\n[1] 12\n");
  const std::string folder = directory.path() + "/attempt_0/";
  CHECK(job.pump.files(0) == std::vector<std::string>{folder + "0/stdout.log"});
  CHECK(job.pump.files(1) ==
        std::vector<std::string>{folder + "1/stdout.log", folder + "1/stderr.log"});
  CHECK(job.pump.files(2).empty());
  CHECK_FALSE(std::filesystem::exists(folder + "2"));
  CHECK(file_contents(folder + "1/stderr.log") == "12\n");
  CHECK(job.pump.tail(2) == "21\n22\n"); // shown nowhere, but for the report
}

TEST_CASE("a temporary directory is made for this user where files are wanted", "[log_pump]") {
  const TemporaryDirectory parent;
  const char* before = std::getenv("TMPDIR");
  const std::string kept = before != nullptr ? before : "";
  ::setenv("TMPDIR", parent.path().c_str(), 1);
  LogOptions options;
  const Job without({}, 2);
  CHECK(without.pump.directory().empty());
  CHECK(std::filesystem::is_empty(parent.path()));
  options.tee = StreamMap(Streams::both);
  const Job job(options, 1);
  before != nullptr ? ::setenv("TMPDIR", kept.c_str(), 1) : ::unsetenv("TMPDIR");
  CHECK(job.pump.directory().starts_with(parent.path() + "/"));
  using std::filesystem::perms;
  const auto rights = [](const std::string& path) {
    return std::filesystem::status(path).permissions() & (perms::group_all | perms::others_all);
  };
  CHECK(rights(job.pump.directory()) == perms::none);
  CHECK(rights(job.pump.directory() + "/attempt_0/0") == perms::none);
  CHECK(rights(job.pump.files(0)[0]) == perms::none);
}

TEST_CASE("a directory in which no log can be made is refused by name", "[log_pump]") {
  const TemporaryDirectory directory;
  std::ofstream(directory.path() + "/file") << "x";
  LogOptions options;
  options.directory = directory.path() + "/file/logs";
  CHECK_THROWS_AS(Job(options, 1), muster::UsageError);
  CHECK_THROWS_WITH(Job(options, 1),
                    Catch::Contains(options.directory) && Catch::Contains("Not a directory"));
}

TEST_CASE("logs of an earlier job are kept once", "[log_file]") {
  const TemporaryDirectory directory;
  const std::string path = directory.path() + "/stdout.log";
  for (const char* text : {"first", "second", "third"})
    LogFile(path, 0).write(text);
  { const LogFile silent(path, 0); }
  CHECK(file_contents(path).empty());
  { const LogFile silent(path, 0); } // an empty one is not worth keeping
  CHECK(file_contents(path + ".1") == "third");
}

TEST_CASE("a file that has reached its limit is begun anew at a line's end", "[log_file]") {
  const TemporaryDirectory directory;
  const std::string path = directory.path() + "/stdout.log";
  LogFile file(path, 10);
  file.write("12345\n789\n"); // 10 bytes fit
  CHECK_FALSE(std::filesystem::exists(path + ".1"));
  file.write("ab\ncdefgh\nij\n");
  CHECK(file_contents(path + ".1") == "ab\ncdefgh\n");
  CHECK(file_contents(path) == "ij\n");
  file.write("0123456789abcdefghijklm\n"); // a line longer than a file
  CHECK(file_contents(path + ".1") == "abcdefghij");
  CHECK(file_contents(path) == "klm\n");
  CHECK_FALSE(file.note());
}

TEST_CASE("a full disk costs the log and not the job", "[log_pump]") {
  const TemporaryDirectory directory;
  const std::string folder = directory.path() + "/attempt_0/0";
  std::filesystem::create_directories(folder);
  std::filesystem::create_symlink("/dev/full", folder + "/stdout.log");
  Job job(in_directory(directory), 1);
  job.say(0, "one\n");
  job.say(0, "two\n");
  job.finish();
  CHECK(job.out == "one\ntwo\n");
  REQUIRE(job.pump.notes().size() == 1);
  CHECK(job.pump.notes()[0] ==
        folder + "/stdout.log: 8 bytes could not be written (No space left on device)");
}

TEST_CASE("a limit on file sizes costs the log and not the job", "[log_file]") {
  const TemporaryDirectory directory;
  const std::string path = directory.path() + "/stdout.log";
  REQUIRE(std::signal(SIGXFSZ, SIG_DFL) == SIG_DFL);
  rlimit before{};
  ::getrlimit(RLIMIT_FSIZE, &before);
  const rlimit small{6, before.rlim_max};
  LogFile file(path, 0);
  ::setrlimit(RLIMIT_FSIZE, &small);
  file.write("1234");
  file.write("5678");
  file.write("9");
  ::setrlimit(RLIMIT_FSIZE, &before);
  CHECK(file_contents(path) == "123456");
  CHECK(*file.note() == path + ": 3 bytes could not be written (File too large)");
}

TEST_CASE("a console that closes is noted once and files go on", "[log_pump]") {
  REQUIRE(std::signal(SIGPIPE, SIG_DFL) == SIG_DFL);
  const TemporaryDirectory directory;
  Job job(in_directory(directory), 2);
  job.say(0, "one\n");
  job.close_console();
  job.say(0, "two\n");
  job.say(1, "three\n");
  job.say(1, "error\n", 2);
  job.finish();
  CHECK(job.err == "[1] error\n");
  CHECK(file_contents(directory.path() + "/attempt_0/0/stdout.log") == "one\ntwo\n");
  CHECK(file_contents(directory.path() + "/attempt_0/1/stdout.log") == "three\n");
  REQUIRE(job.pump.notes().size() == 1);
  CHECK(job.pump.notes()[0].starts_with("stdout: it cannot be written (Broken pipe)"));
}

TEST_CASE("a console that is full, or was never open, is noted", "[log_pump]") {
  const Fd full(::open("/dev/full", O_WRONLY | O_CLOEXEC));
  const std::pair<int, std::string> cases[] = {{full.get(), "No space left on device"},
                                               {1'000'000, "Bad file descriptor"}};
  for (const auto& [console, error] : cases) {
    Job job({}, make_ranks(2), console, -1);
    job.say(0, "x\n");
    job.say(0, "y\n", 2);
    job.finish();
    CHECK(job.err == "[0] y\n");
    REQUIRE(job.pump.notes().size() == 1);
    CHECK(mentions(job.pump.notes(), "stdout: it cannot be written (" + error + ")"));
  }
}

TEST_CASE("a console may be a file, a null device or a socket", "[log_pump]") {
  const TemporaryDirectory directory;
  const std::string path = directory.path() + "/console";
  const Fd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  int ends[2] = {-1, -1};
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
  const Fd near(ends[0]);
  const Fd far(ends[1]);
  Job job({}, make_ranks(2), file.get(), near.get());
  job.say(0, "to the file\n");
  job.say(1, "to the socket\n", 2);
  CHECK(file_contents(path) == "[0] to the file\n");
  CHECK(read_available(far.get()) == "[1] to the socket\n");
  const Fd null(::open("/dev/null", O_WRONLY | O_CLOEXEC));
  Job nowhere({}, make_ranks(2), null.get(), null.get());
  nowhere.say(0, "x\n");
  nowhere.finish();
  CHECK(nowhere.pump.notes().empty());
}

TEST_CASE("the launcher's own descriptors stay as they were", "[log_pump]") {
  const PipeEnds console = make_pipe();
  const int before = ::fcntl(console.write.get(), F_GETFL);
  Job job({}, make_ranks(2), console.write.get(), -1);
  job.say(0, "x\n");
  CHECK(::fcntl(console.write.get(), F_GETFL) == before);
  CHECK((before & O_NONBLOCK) == 0);
  job.say(0, "y\n");
  CHECK((::fcntl(job.end(0), F_GETFL) & O_NONBLOCK) == 0);
}

TEST_CASE("a console that is not read makes the ranks wait that are shown on it", "[log_pump]") {
  const TemporaryDirectory directory;
  LogOptions options = in_directory(directory);
  options.redirects = StreamMap::parse("1:3", "");
  options.prefix = "> ";
  Job job(options, 2);
  job.reading = false;
  const std::string line = std::string(99, 'x') + "\n";
  constexpr int count = 30'000; // 3 MB
  std::atomic<int> shown = 0;
  std::thread shown_rank([&] {
    for (int k = 0; k < count; ++k, ++shown)
      write_all(job.end(0), line);
  });
  std::thread other_rank([&] {
    for (int k = 0; k < count; ++k)
      write_all(job.end(1), line);
  });
  const std::string file = directory.path() + "/attempt_0/1/stdout.log";
  CHECK(job.pump_until([&] { return std::filesystem::file_size(file) == count * line.size(); }));
  other_rank.join();
  job.pump_all();
  CHECK(shown < 10'000); // two pipes of 64 KiB, 256 KiB that wait, and a read of 64 KiB
  CHECK_FALSE(job.pump.idle());
  job.reading = true;
  CHECK(job.pump_until([&] { return job.out.size() == count * (line.size() + 2); }));
  shown_rank.join();
  job.finish();
  CHECK(job.pump.notes().empty());
}

TEST_CASE("what a rank wrote before its end waits for a slow console", "[log_pump]") {
  Job job({}, 2);
  job.reading = false;
  const std::string line = std::string(99, 'x') + "\n";
  int written = 0;
  for (pollfd room{job.end(0), POLLOUT, 0}; ::poll(&room, 1, 0) > 0; ++written)
    job.say(0, line);
  job.end_rank(0);
  job.end_rank(1);
  CHECK_FALSE(job.pump.idle());
  job.pump.turn(Clock::now() + std::chrono::hours(1));
  job.reading = true;
  CHECK(job.pump_until([&] { return job.pump.idle(); }));
  job.read_consoles();
  CHECK(job.out.size() == static_cast<std::size_t>(written) * (line.size() + 4));
  CHECK(job.pump.notes().empty());
}

TEST_CASE("what the last rank wrote is on the console without another event", "[log_pump]") {
  Job job({}, 2);
  job.end_rank(0);
  REQUIRE(write_all(job.end(1), "last\n"));
  job.end_rank(1);
  CHECK(job.pump.idle());
}

TEST_CASE("a job can end although nobody reads its console", "[log_pump]") {
  Job job({}, 2);
  job.reading = false;
  for (pollfd room{job.end(0), POLLOUT, 0}; ::poll(&room, 1, 0) > 0;)
    job.say(0, std::string(99, 'x') + "\n");
  job.end_rank(0);
  job.end_rank(1);
  CHECK_FALSE(job.pump.idle());
  job.pump.give_up_console();
  CHECK(job.pump_until([&] { return job.pump.idle(); }));
  CHECK(mentions(job.pump.notes(), "bytes were not shown, since nobody read them"));
}

TEST_CASE("whole lines are dropped and counted where that is asked for", "[log_pump]") {
  LogOptions options;
  options.drop_when_full = true;
  Job job(options, 2);
  job.reading = false;
  constexpr int count = 20'000;
  for (int k = 0; k < count; ++k)
    job.say(0, fmt::format("{:099}\n", k));
  job.reading = true;
  job.finish();
  const auto lines = lines_of(job.out);
  CHECK(std::all_of(
      lines.begin(), lines.end(), [](const std::string& line) { return line.size() == 103; }));
  CHECK(lines.size() < count);
  REQUIRE(job.pump.notes().size() == 1);
  CHECK(mentions(job.pump.notes(),
                 fmt::format("rank 0: {} lines of its stdout", count - lines.size())));
}

TEST_CASE("who holds a pipe open after the rank's end is named and not waited for", "[log_pump]") {
  Job job({}, 2);
  PipeEnds alive = make_pipe();
  const int held = job.end(0);
  const pid_t holder = ::fork();
  if (holder == 0) { // keeps the rank's ends until `alive` closes
    alive.write.reset();
    char byte = 0;
    ::_exit(::write(held, "from the daemon\n", 16) == 16 && ::read(alive.read.get(), &byte, 1) == 0
                ? 0
                : 1);
  }
  CHECK(job.pump_until([&] { return job.out == "[0] from the daemon\n"; }));
  job.say(0, "last words");
  job.end_rank(0);
  job.end_rank(1);
  CHECK_FALSE(job.pump.idle());
  REQUIRE(job.pump.deadline());
  job.pump.turn(*job.pump.deadline() + std::chrono::seconds(1));
  CHECK(job.pump.idle());
  job.read_consoles();
  CHECK(job.out == "[0] from the daemon\n[0] last words\n");
  CHECK(mentions(job.pump.notes(), fmt::format("rank 0: process {} (", holder)));
  CHECK(mentions(job.pump.notes(), "stdout and stderr"));
  alive.write.reset();
  int status = -1;
  CHECK(::waitpid(holder, &status, 0) == holder);
  CHECK(status == 0);
}

TEST_CASE("the tail has the last lines of both streams as a terminal shows them", "[log_pump]") {
  LogOptions options;
  options.tail_lines = 4;
  Job job(options, 2);
  job.say(1, "one\ntwo\nthree\n");
  job.say(1, "error\r\n", 2);
  job.say(1, "10%\r20%\r100%\nunfin");
  job.say(1, "ished");
  CHECK(job.pump.tail(1) == "three\nerror\n100%\nunfinished\n");
  CHECK(job.pump.tail(0).empty());
  Tail tail;
  for (int k = 0; k < 100'000; ++k)
    tail.add(0, fmt::format("{}\n", k));
  tail.add(1, std::string(1'000'000, 'x'));
  CHECK(tail.last(1'000'000).size() < 2 * Tail::least_bytes);
  CHECK(tail.last(2).starts_with("99999\nx"));
  CHECK(tail.last(0).empty());
}

TEST_CASE("512 ranks can be looked after", "[log_pump]") {
  rlimit before{};
  ::getrlimit(RLIMIT_NOFILE, &before);
  const rlimit raised{std::max<rlim_t>(before.rlim_cur, std::min<rlim_t>(before.rlim_max, 8192)),
                      before.rlim_max};
  ::setrlimit(RLIMIT_NOFILE, &raised);
  {
    Job job({}, 512);
    for (std::size_t i = 0; i < 512; ++i)
      REQUIRE(write_all(job.end(i), fmt::format("from {}\n", i)));
    job.finish();
    const auto lines = lines_of(job.out);
    CHECK(std::set<std::string>(lines.begin(), lines.end()).size() == 512);
    CHECK(std::find(lines.begin(), lines.end(), "[511] from 511") != lines.end());
  }
  ::setrlimit(RLIMIT_NOFILE, &before);
}

TEST_CASE("too few descriptors are an error that says what to do", "[log_pump]") {
  sys::fail_call(1, EMFILE); // the first is for epoll
  CHECK_THROWS_WITH(LogPump({}, "", 0, make_ranks(2)),
                    Catch::Contains("the pipe for stdout of rank 0") &&
                        Catch::Contains("ulimit -n"));
  CHECK(sys::calls_made() == 2);
}

TEST_CASE("a pump that cannot be made is an error and leaves no descriptor", "[log_pump]") {
  const TemporaryDirectory directory;
  const auto count_fds = [] {
    const std::filesystem::directory_iterator list("/proc/self/fd");
    return std::distance(begin(list), end(list));
  };
  const auto before = count_fds();
  for (long k = 0, calls = k + 1; calls > k; ++k) {
    sys::fail_call(k, ENOSPC);
    try {
      const LogPump pump(in_directory(directory), "", 0, make_ranks(2));
    } catch (const muster::Error& error) {
      CHECK_THAT(error.what(), Catch::Contains("No space left on device"));
    }
    calls = sys::calls_made();
    CHECK(count_fds() == before);
  }
}
