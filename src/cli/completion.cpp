#include "completion.hpp"

#include <string_view>

#include "flags.hpp"

namespace muster::cli {

namespace {

/// The spellings of a flag, with `between` them.
std::string spellings(const Flag& flag, const std::string& between) {
  return to_string(flag) + (flag.letter ? between + '-' + flag.letter : "");
}

std::string list(bool only_with_value) {
  std::string all;
  for (const Flag& flag : flags())
    if (flag.group != Group::refused && (flag.value || !only_with_value))
      all += spellings(flag, " ") + ' ';
  return all;
}

/// A case of _muster_value.
std::string values(const Flag& flag) {
  const std::string_view candidates = flag.candidates;
  std::string action = "_muster_words '" + std::string(candidates) + "'";
  if (candidates == "<file>")
    action = "_muster_files -f";
  if (candidates == "<directory>")
    action = "_muster_files -d";
  return "    " + spellings(flag, " | ") + ") " + action + " ;;\n";
}

constexpr const char* functions = R"(  esac
}

_muster_words() {
  mapfile -t COMPREPLY < <(compgen -W "$1" -- "$current")
}

_muster_files() {
  compopt -o filenames 2>/dev/null
  mapfile -t COMPREPLY < <(compgen "$@" -- "$current")
}

_muster_run() {
  local at word expected=
  for ((at = 2; at < COMP_CWORD; ++at)); do
    word=${COMP_WORDS[at]}
    if [[ $word == [=:] ]]; then
      continue # bash takes --tee=0:3 apart
    elif [[ -n $expected ]]; then
      expected=
    elif [[ ${COMP_WORDS[at - 1]} == [=:] ]]; then
      continue
    elif [[ " $_muster_with_value " == *" ${word//_/-} "* ]]; then
      expected=${word//_/-}
    elif [[ $word != -* || $word == -- ]]; then
      return # the program's own words
    fi
  done
  if [[ -n $expected ]]; then
    _muster_value "$expected"
  elif [[ $current == -* ]]; then
    _muster_words "$_muster_flags"
  elif [[ -n $current ]]; then
    _muster_files -c
  fi
}

_muster() {
  local current=${COMP_WORDS[COMP_CWORD]}
  [[ $current != = ]] || current=
  COMPREPLY=()
  if ((COMP_CWORD == 1)); then
    _muster_words 'run completion --help --version'
  elif [[ ${COMP_WORDS[1]} == run ]]; then
    _muster_run
  elif [[ ${COMP_WORDS[1]} == completion ]] && ((COMP_CWORD == 2)); then
    _muster_words bash
  fi
}

complete -o default -F _muster muster
)";

} // namespace

std::string bash_completion() {
  std::string script = "# Completion of muster's command line: source <(muster completion bash)\n";
  script += "_muster_flags='" + list(false) + "'\n";
  script += "_muster_with_value='" + list(true) + "'\n\n";
  script += "_muster_value() {\n  case $1 in\n";
  for (const Flag& flag : flags())
    if (flag.group != Group::refused && flag.candidates[0] != 0)
      script += values(flag);
  return script + functions;
}

} // namespace muster::cli
