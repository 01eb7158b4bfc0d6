#pragma once

#include <muster/launch/logs.hpp>
#include <muster/launch/task.hpp>

#include <array>
#include <string>
#include <vector>

namespace muster::process {

/// The names of streams 1 and 2, less one.
inline constexpr std::array<const char*, 2> stream_names = {"stdout", "stderr"};

/// Where LogOptions lets the output of a launcher's ranks go.
class LogPlan {
public:
  /// All three must outlive this object.
  LogPlan(const LogOptions& options, const std::string& role, const std::vector<RankSpec>& ranks);

  /// Streams are 0 (stdout) and 1 (stderr).
  bool to_file(const RankSpec& rank, std::size_t stream) const;
  bool to_console(const RankSpec& rank, std::size_t stream) const;

  bool any_file() const;
  /// One rank is shown, as if it wrote to the console itself.
  bool raw() const noexcept { return raw_; }
  /// What its lines begin with on a console that `is_terminal`.
  std::string prefix(const RankSpec& rank, std::size_t stream, bool is_terminal) const;

private:
  const LogOptions& options_;
  const std::string& role_;
  const std::vector<RankSpec>& ranks_;
  std::string pattern_;
  bool raw_ = false;
};

} // namespace muster::process
