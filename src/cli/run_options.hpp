#pragma once

#include <muster/cluster/environment.hpp>
#include <muster/launch/options.hpp>

#include <optional>
#include <string>
#include <vector>

namespace muster::cli {

/// What `muster run` was asked to do. Values are checked as far as the command line alone allows.
struct RunOptions {
  LaunchOptions launch; ///< its `logs` are set
  /// Ranks on this host; unset: what `nproc_word` says, else the environment, else 1.
  std::optional<int> nprocs = {};
  std::string nproc_word = {}; ///< "auto", "cpu", "gpu" or nothing
  /// The program, or Python module, and its arguments.
  std::vector<std::string> command = {};
  bool module = false;
  bool no_python = false;
  std::vector<std::string> wrap = {};  ///< put before the command
  RankSet wrap_ranks = RankSet::all(); ///< local ranks that `wrap` is for
  std::string report_file = {};        ///< empty: none
  std::string cluster = {};            ///< "local", the only one so far, or nothing
  bool dry_run = false;
  bool print_env = false;
  /// Then nothing else is set.
  bool help = false;
  bool version = false;
};

/// Reads what comes after `muster run`. A flag wins over its PET_ variable, which wins over the
/// flag's other one. Throws one UsageError with all problems, a line each.
RunOptions parse_run(const std::vector<std::string>& arguments, const EnvSnapshot& environment);

} // namespace muster::cli
