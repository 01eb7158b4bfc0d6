#pragma once

#include <algorithm>
#include <sstream>
#include <string>
#include <vector>

#include "command.hpp"
#include "folder.hpp"
#include "ranks.hpp"

// What tests of `muster run` share.
namespace test {

/// `muster run OPTIONS...`; the job's mark in the environment finds what it leaves behind.
class Run : public Command {
public:
  explicit Run(std::vector<std::string> arguments, CommandOptions options = {})
      : Command(line(std::move(arguments)), marked(options)),
        mark_(options.env["MUSTER_TEST_MARK"]) {}

  bool nothing_left() const {
    return eventually([this] { return processes_with("MUSTER_TEST_MARK=" + mark_).empty(); });
  }
  std::vector<pid_t> processes() const { return processes_with("MUSTER_TEST_MARK=" + mark_); }

private:
  static std::vector<std::string> line(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {MUSTER_COMMAND, "run"});
    return arguments;
  }
  static const CommandOptions& marked(CommandOptions& options) {
    static int count = 0;
    options.env["MUSTER_TEST_MARK"] =
        std::to_string(::getpid()) + "." + std::to_string(++count) + ".";
    return options;
  }

  std::string mark_;
};

/// A shell script as the program of N ranks.
inline std::vector<std::string>
script(int ranks, const std::string& text, std::vector<std::string> options = {}) {
  options.insert(options.begin(), {"--nproc-per-node", std::to_string(ranks)});
  options.insert(options.end(), {"--", "sh", "-c", text});
  return options;
}

/// The lines of a text, sorted.
inline std::vector<std::string> sorted_lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);)
    lines.push_back(line);
  std::sort(lines.begin(), lines.end());
  return lines;
}

} // namespace test
