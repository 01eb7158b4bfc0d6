#include <muster/launch/error.hpp>
#include <muster/launch/init.hpp>
#include <muster/version.hpp>

#include <cstdio>
#include <sstream>
#include <string>
#include <vector>

#include "completion.hpp"
#include "help.hpp"
#include "run.hpp"

namespace {

using namespace muster;

using Arguments = std::vector<std::string>;

int print(const std::string& text) {
  const bool whole =
      std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0;
  return whole ? 0 : 1;
}

int print_version() { return print(std::string("muster ") + version() + '\n'); }

int start(const Arguments& arguments) {
  const cli::RunOptions options = cli::parse_run(arguments, EnvSnapshot::current());
  if (options.help)
    return print(cli::run_help());
  return options.version ? print_version() : cli::run(options);
}

int complete(const Arguments& arguments) {
  if (arguments != Arguments{"bash"})
    throw UsageError("completion: the only shell is bash: write muster completion bash");
  return print(cli::bash_completion());
}

int dispatch(const std::string& command, const Arguments& arguments) {
  if (command == "run")
    return start(arguments);
  if (command == "completion")
    return complete(arguments);
  if (command == "--help" || command == "-h" || command == "help")
    return print(cli::command_help());
  if (command == "--version")
    return print_version();
  throw UsageError("'" + command +
                   "' is no command of muster: write muster run PROGRAM, or see muster --help");
}

} // namespace

int main(int argc, char** argv) {
  const Arguments words(argv + (argc > 0 ? 1 : 0), argv + argc);
  try {
    init(argc, argv);
    if (words.empty())
      throw UsageError("a command is missing: write muster run PROGRAM, or see muster --help");
    return dispatch(words.front(), Arguments(words.begin() + 1, words.end()));
  } catch (const Error& error) {
    std::istringstream lines(error.what());
    for (std::string line; std::getline(lines, line);)
      std::fprintf(stderr, "muster: %s\n", line.c_str());
    return error.exit_code();
  }
}
