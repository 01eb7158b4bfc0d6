#include <muster/version.hpp>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include <sys/wait.h>

#include "catch.hpp"
#include "cli/completion.hpp"
#include "cli/flags.hpp"
#include "cli/help.hpp"

using muster::cli::Flag;

namespace {

using Words = std::vector<std::string>;

struct Output {
  std::string text;
  int code = -1;
};

/// What a shell command writes to stdout, and its exit code; 124 if it has not ended in 30 s.
Output output_of(const std::string& command) {
  Output output;
  FILE* const pipe = ::popen(("timeout 30 " + command).c_str(), "re");
  REQUIRE(pipe);
  std::array<char, 4096> buffer{};
  while (const std::size_t size = std::fread(buffer.data(), 1, buffer.size(), pipe))
    output.text.append(buffer.data(), size);
  const int status = ::pclose(pipe);
  output.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return output;
}

Words lines_of(const std::string& text) {
  Words lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);)
    lines.push_back(line);
  return lines;
}

/// What a bash that has read the script offers for the last word.
Words complete(const Words& words) {
  std::string line;
  for (const std::string& word : words)
    line += (&word == words.data() ? "" : "\n") + word;
  ::setenv("TEST_SCRIPT", muster::cli::bash_completion().c_str(), 1);
  ::setenv("TEST_WORDS", line.c_str(), 1);
  const Output output = output_of(R"(bash --noprofile --norc -c '
    source /dev/stdin <<<"$TEST_SCRIPT" || exit
    complete -p muster >&2 || exit
    mapfile -t COMP_WORDS <<<"$TEST_WORDS"
    COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
    _muster
    ((${#COMPREPLY[@]} == 0)) || printf "%s\n" "${COMPREPLY[@]}"' 2>/dev/null)");
  CHECK(output.code == 0);
  return lines_of(output.text);
}

Words split(const std::string& text) {
  std::istringstream stream(text);
  Words words;
  for (std::string word; stream >> word;)
    words.push_back(word);
  return words;
}

Output muster_command(const std::string& arguments) {
  return output_of(std::string(MUSTER_COMMAND) + " " + arguments);
}

} // namespace

TEST_CASE("commands and shells are completed", "[completion]") {
  CHECK(complete({"muster", ""}) == Words{"run", "completion", "--help", "--version"});
  CHECK(complete({"muster", "r"}) == Words{"run"});
  CHECK(complete({"muster", "completion", ""}) == Words{"bash"});
  CHECK(complete({"muster", "nonsense", ""}).empty());
}

TEST_CASE("every flag that is not refused is completed", "[completion]") {
  Words expected;
  for (const Flag& flag : muster::cli::flags())
    if (flag.group != muster::cli::Group::refused)
      expected.push_back(to_string(flag));
  CHECK(complete({"muster", "run", "--"}) == expected);
  CHECK(complete({"muster", "run", "-m", "--nproc_per_node", "2", "--nno"}) == Words{"--nnodes"});
  CHECK(complete({"muster", "run", "-t", "3", "-r"}) == Words{"-r"});
}

TEST_CASE("the values of every flag that has a choice are completed", "[completion]") {
  for (const Flag& flag : muster::cli::flags()) {
    const std::string candidates = flag.candidates;
    if (flag.group == muster::cli::Group::refused || candidates.empty() || candidates[0] == '<')
      continue;
    INFO(flag.name);
    CHECK(complete({"muster", "run", to_string(flag), ""}) == split(candidates));
  }
  CHECK(complete({"muster", "run", "--log_overflow", "d"}) == Words{"drop"});
  CHECK(complete({"muster", "run", "--color", "="}) == Words{"auto", "always", "never"});
  CHECK(complete({"muster", "run", "--color", "=", "n"}) == Words{"never"});
  CHECK(complete({"muster", "run", "-t", ""}) == Words{"0", "1", "2", "3"});
}

TEST_CASE("files and folders are completed by name", "[completion]") {
  std::string folder = "/tmp/muster-completion-XXXXXX";
  REQUIRE(::mkdtemp(folder.data()));
  const auto remove = [](const char* path) { output_of("rm -rf " + std::string(path)); };
  const std::unique_ptr<char, decltype(remove)> guard(folder.data(), remove);
  const std::string inside = folder + "/re";
  REQUIRE(output_of("mkdir " + inside + "sults").code == 0);
  REQUIRE(output_of("touch '" + inside + "port 1'").code == 0);
  CHECK(complete({"muster", "run", "--log-dir", inside}) == Words{inside + "sults"});
  Words files = complete({"muster", "run", "--report", inside});
  std::sort(files.begin(), files.end());
  CHECK(files == Words{inside + "port 1", inside + "sults"});
}

TEST_CASE("programs are completed, and their own words are left to bash", "[completion]") {
  const Words programs = complete({"muster", "run", "--nproc-per-node", "2", "bas"});
  CHECK(std::count(programs.begin(), programs.end(), "bash") >= 1);
  CHECK(complete({"muster", "run", "train", "--te"}).empty());
  CHECK(complete({"muster", "run", "--", "--te"}).empty());
  // As bash takes apart --tee=0:3,1:1 and -r 0:3.
  CHECK(complete({"muster",
                  "run",
                  "--tee",
                  "=",
                  "0",
                  ":",
                  "3,1",
                  ":",
                  "1",
                  "-r",
                  "0",
                  ":",
                  "3",
                  "--nno"}) == Words{"--nnodes"});
}

TEST_CASE("the command shows help, version and the script", "[command]") {
  const Output script = muster_command("completion bash");
  CHECK(script.code == 0);
  CHECK(script.text == muster::cli::bash_completion());
  CHECK(muster_command("run --help").text == muster::cli::run_help());
  CHECK(muster_command("--help").text == muster::cli::command_help());
  CHECK(muster_command("--version").text == "muster " MUSTER_VERSION "\n");
  CHECK(muster_command("run --version").text == "muster " MUSTER_VERSION "\n");
}

TEST_CASE("the command says what is wrong with its line and ends with 2", "[command]") {
  CHECK(muster_command("2>&1").code == 2);
  CHECK(muster_command("completion zsh 2>&1").code == 2);
  CHECK(
      muster_command("train 2>&1").text ==
      "muster: 'train' is no command of muster: write muster run PROGRAM, or see muster --help\n");
  const Output wrong = muster_command("run --tee 5 --color no program 2>&1");
  CHECK(wrong.code == 2);
  const Words lines = lines_of(wrong.text);
  REQUIRE(lines.size() == 2);
  CHECK_THAT(lines[0], Catch::StartsWith("muster: --tee '5': "));
  CHECK_THAT(lines[1], Catch::StartsWith("muster: --color 'no': "));
}
