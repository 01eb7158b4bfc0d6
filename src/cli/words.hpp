#pragma once

#include <map>
#include <string>
#include <vector>

namespace muster::cli {

/// A command line, taken apart but not judged.
struct Words {
  std::map<std::string, std::string> values; ///< by the flag's name; a switch has "true"
  std::vector<std::string> command;          ///< the program and what comes after it, untouched
  std::vector<std::string> problems;         ///< flags that do not exist or miss their value
};

/// Takes apart what comes after `muster run`. Options end at the first word that is none, or at --.
Words take_apart(const std::vector<std::string>& arguments);

} // namespace muster::cli
