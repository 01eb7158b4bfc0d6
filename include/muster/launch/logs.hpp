#pragma once

#include <muster/launch/rank_set.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace muster {

/// Output streams of a rank; the numbers are torchrun's.
enum class Streams { none = 0, out = 1, err = 2, both = 3 };

/// Which streams of which local ranks.
class StreamMap {
public:
  /// No stream of any rank.
  StreamMap() = default;
  /// The same for every rank.
  explicit StreamMap(Streams streams) : everywhere_(streams) {}

  /// "3" for every rank, or "0:3,4-7:1": ranks that are not named have none. Throws UsageError that
  /// quotes `text` and begins with `subject` ("--tee").
  static StreamMap parse(const std::string& text, const std::string& subject);

  Streams of(int local_rank) const noexcept;
  /// True if no rank has any.
  bool empty() const noexcept;
  /// The highest local rank that is named, or -1.
  int highest() const noexcept;

private:
  Streams everywhere_ = Streams::none;
  std::vector<std::pair<RankSet, Streams>> by_rank_;
};

/// What a launcher does with the output of its ranks.
struct LogOptions {
  /// Files go to DIRECTORY/attempt_N/RANK/stdout.log and stderr.log, byte-exact. Empty: a fresh
  /// folder in the system's temporary one if `redirects` or `tee` ask for files. What an earlier
  /// job has left there is kept, as stdout.log.1.
  std::string directory = {};
  /// Streams that go to files only. With a directory and neither `redirects` nor `tee`, both
  /// streams of every rank go to files and to the console.
  StreamMap redirects = {};
  /// Streams that go to files and to the console.
  StreamMap tee = {};
  /// Local ranks that are shown on the console.
  RankSet console = RankSet::all();
  /// Begins every line on the console: ${rank}, ${local_rank}, ${role_name}, ${hostname} and
  /// ${stream} are replaced. Unset: "[${rank}] " where more than one rank is shown, else nothing.
  std::optional<std::string> prefix = {};
  /// Prefixes in colour, a colour per rank. Unset: on a terminal, unless NO_COLOR is set.
  std::optional<bool> color = {};
  /// A file that has reached this size is renamed to stdout.log.1, in place of an older one, and
  /// begun anew. 0: no limit.
  std::uint64_t file_limit_bytes = 0;
  /// What does not fit while the console is not read: ranks wait (false), or lines are dropped and
  /// counted (true).
  bool drop_when_full = false;
  /// Lines of the failed rank's output in the report.
  int tail_lines = 20;
};

} // namespace muster
