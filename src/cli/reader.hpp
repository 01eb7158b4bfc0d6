#pragma once

#include <muster/cluster/environment.hpp>
#include <muster/launch/error.hpp>

#include <initializer_list>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "words.hpp"

namespace muster::cli {

/// The value of a flag and what brought it: "--tee", "PET_TEE" or another variable.
struct Given {
  std::string subject;
  std::string text;
};

/// Reads the values of flags from the command line and the environment, and collects what is wrong
/// with them.
class Reader {
public:
  /// Keeps both.
  Reader(const Words& words, const EnvSnapshot& environment);

  /// The value as it was given.
  std::optional<Given> find(const char* flag) const;

  /// The value as `convert` makes it of a Given; nullopt if there is none, or if it throws a
  /// UsageError, which becomes a problem.
  template <class Convert>
  auto get(const char* flag, Convert convert) -> std::optional<decltype(convert(Given()))> {
    const auto given = find(flag);
    try {
      if (given)
        return convert(*given);
    } catch (const UsageError& error) {
      problems_.emplace_back(error.what());
    }
    return std::nullopt;
  }

  /// Replaces `target` if there is a value.
  template <class T, class Convert>
  void read(const char* flag, T& target, Convert convert) {
    if (auto value = get(flag, convert))
      target = std::move(*value);
  }

  void read(const char* flag, std::string& target);
  void read(const char* flag, bool& target);

  /// "--nnodes '2'", "PET_NNODES '2'", or "--nnodes" if it was not given.
  std::string spell(const char* flag) const;

  template <class... Args>
  void problem(fmt::format_string<Args...> format, Args&&... args) {
    problems_.push_back(fmt::format(format, std::forward<Args>(args)...));
  }
  const std::vector<std::string>& problems() const noexcept { return problems_; }

private:
  const Words& words_;
  const EnvSnapshot& environment_;
  std::vector<std::string> problems_;
};

/// A whole number. Throws UsageError if it is none, or outside.
int whole(const Given& given, int least, int most);

/// "true" and "1", or "false" and "0".
bool truth(const Given& given);

/// What goes by the name that is given. Throws UsageError that lists all names.
template <class T>
T pick(const Given& given, std::initializer_list<std::pair<const char*, T>> choices) {
  std::string names;
  for (const auto& [name, value] : choices) {
    if (given.text == name)
      return value;
    names += (names.empty() ? "" : ", ") + std::string(name);
  }
  throw UsageError(fmt::format("{} '{}': it must be one of {}", given.subject, given.text, names));
}

} // namespace muster::cli
