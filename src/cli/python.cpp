#include "python.hpp"

#include <cstdlib>
#include <fstream>

#include <unistd.h>

namespace muster::cli {

namespace {

std::string python() {
  const char* chosen = std::getenv("PYTHON_EXEC");
  return chosen && *chosen ? chosen : "python3";
}

bool runs_itself(const std::string& file) {
  char head[2] = {};
  std::ifstream(file).read(head, sizeof head);
  return ::access(file.c_str(), X_OK) == 0 && head[0] == '#' && head[1] == '!';
}

} // namespace

std::vector<std::string> with_python(std::vector<std::string> argv) {
  std::string& program = argv.at(0);
  if (!program.ends_with(".py") || ::access(program.c_str(), F_OK) != 0)
    return argv;
  if (!runs_itself(program))
    argv.insert(argv.begin(), {python(), "-u"});
  else if (program.find('/') == std::string::npos)
    program = "./" + program; // not the one in PATH
  return argv;
}

std::vector<std::string> as_module(std::vector<std::string> argv) {
  argv.insert(argv.begin(), {python(), "-u", "-m"});
  return argv;
}

} // namespace muster::cli
