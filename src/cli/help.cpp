#include "help.hpp"

#include <sstream>
#include <string_view>

#include <fmt/format.h>

#include "flags.hpp"

namespace muster::cli {

namespace {

std::string title(Group group) {
  switch (group) {
  case Group::ranks:
    return "Ranks";
  case Group::output:
    return "Output";
  case Group::failure:
    return "Failure and signals";
  case Group::nodes:
    return "Several nodes";
  default:
    return "Other";
  }
}

std::string line(const Flag& flag) {
  const std::string left = fmt::format("{}{}{}{}",
                                       flag.letter ? fmt::format("-{}, ", flag.letter) : "",
                                       to_string(flag),
                                       flag.value ? " " : "",
                                       flag.value ? flag.value : "");
  return fmt::format("  {:<27}  {}\n", left, flag.help);
}

/// "--run-path, --logs-specs": the names of a group.
std::string names(Group group) {
  std::string all;
  for (const Flag& flag : flags())
    if (flag.group == group)
      all += (all.empty() ? "" : ", ") + to_string(flag);
  return all;
}

/// `text` in lines of at most 80 columns.
std::string wrapped(const std::string& text) {
  std::string lines;
  std::size_t column = 0;
  std::istringstream words(text);
  for (std::string word; words >> word; column += word.size()) {
    const bool fits = column + 1 + word.size() <= 80;
    if (column > 0)
      lines += fits ? ' ' : '\n';
    column = column > 0 && fits ? column + 1 : 0;
    lines += word;
  }
  return lines + '\n';
}

} // namespace

std::string command_help() {
  return "usage: muster run [OPTION]... [--] PROGRAM [ARGUMENT]...\n"
         "       muster completion bash\n"
         "       muster --version\n"
         "\n"
         "run         starts PROGRAM on several ranks; muster run --help tells more\n"
         "completion  prints what completes muster's command line: source it\n";
}

std::string run_help() {
  std::string text =
      "usage: muster run [OPTION]... [--] PROGRAM [ARGUMENT]...\n"
      "\n"
      "Starts PROGRAM on several ranks with torchrun's environment. If a rank fails, it\n"
      "is named, the others are stopped, and muster ends with its exit code, or with\n"
      "128 + its signal. Options end at PROGRAM; of one given twice the last counts.\n";
  for (const Group group :
       {Group::ranks, Group::output, Group::failure, Group::nodes, Group::other}) {
    text += '\n' + title(group) + '\n';
    for (const Flag& flag : flags())
      if (flag.group == group && !flag.same_as)
        text += line(flag);
  }
  text +=
      '\n' + wrapped("Accepted from torchrun: --log-line-prefix-template, which is --prefix, and "
                     "without effect " +
                     names(Group::no_effect) +
                     ". Refused, with what to use instead: " + names(Group::refused) + '.');
  return text +
         wrapped("Flags may be spelled with underscores. Those of torchrun are also read from "
                 "PET_<NAME>, such as PET_NNODES.");
}

} // namespace muster::cli
