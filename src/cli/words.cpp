#include "words.hpp"

#include <algorithm>
#include <utility>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>

#include "flags.hpp"

namespace muster::cli {

namespace {

using Options = std::vector<std::pair<const Flag*, CLI::Option*>>;

/// Stands for the empty value of "--flag=": CLI11 would take the next word instead.
constexpr const char* nothing = "\x01nothing\x01";

Options add_flags(CLI::App& app) {
  Options options;
  for (const Flag& flag : flags()) {
    std::string names = to_string(flag);
    if (with_underscores(flag) != names)
      names += "," + with_underscores(flag);
    if (flag.letter != 0)
      names += std::string(",-") + flag.letter;
    CLI::Option* const option = flag.value ? app.add_option(names) : app.add_flag(names);
    option->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
    options.emplace_back(&flag, option);
  }
  return options;
}

/// For CLI11: the last word first.
std::vector<std::string> reversed(const std::vector<std::string>& arguments) {
  std::vector<std::string> words(arguments.rbegin(), arguments.rend());
  for (std::string& word : words)
    if (word.starts_with("--") && word.find('=') + 1 == word.size())
      word += nothing;
  return words;
}

std::string no_such_flag(const std::string& word) {
  const std::string name = word.substr(0, word.find('='));
  std::string meant;
  for (const Flag& flag : flags())
    if (name.size() > 2 &&
        (to_string(flag).starts_with(name) || with_underscores(flag).starts_with(name)))
      meant += (meant.empty() ? "" : " or ") + to_string(flag);
  if (!meant.empty())
    return name + ": flags are not abbreviated: write " + meant;
  return name +
         ": there is no such flag (see muster run --help); those of the program come after it";
}

/// Where the program begins among the words that are no flag of ours; what is before it is wrong.
std::size_t skip_unknown(const std::vector<std::string>& rest, std::vector<std::string>& problems) {
  std::size_t at = 0;
  for (; at < rest.size() && rest[at].size() > 1 && rest[at][0] == '-'; ++at) {
    if (rest[at] == "--")
      return at + 1;
    problems.push_back(no_such_flag(rest[at]));
  }
  return at;
}

void take_value(const Flag& flag, std::string value, Words& words) {
  if (value == nothing)
    value.clear();
  if (flag.letter != 0 && value.starts_with('='))
    value.erase(0, 1); // -t=3
  if (flag.value && find_flag(value.substr(0, value.find('='))))
    words.problems.push_back(to_string(flag) + ": its value is missing, since " + value +
                             " follows");
  else
    words.values[flag.name] = std::move(value);
}

} // namespace

Words take_apart(const std::vector<std::string>& arguments) {
  Words words;
  CLI::App app;
  app.set_help_flag();
  app.prefix_command();
  const Options options = add_flags(app);
  try {
    app.parse(reversed(arguments));
  } catch (const CLI::ArgumentMismatch&) { // only at the end of the line
    words.problems.push_back(arguments.back() + ": its value is missing");
  }
  const std::vector<std::string> rest = app.remaining();
  const std::size_t program = skip_unknown(rest, words.problems);
  words.command.assign(arguments.end() - static_cast<std::ptrdiff_t>(rest.size() - program),
                       arguments.end());
  for (const auto& [flag, option] : options)
    if (!option->results().empty())
      take_value(*flag, option->results().back(), words);
  return words;
}

} // namespace muster::cli
