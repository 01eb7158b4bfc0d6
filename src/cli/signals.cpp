#include "signals.hpp"

#include <muster/launch/error.hpp>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <csignal>
#include <cstring>
#include <sstream>

#include <fmt/format.h>

namespace muster::cli {

namespace {

/// A number at the whole of `text`, or nullopt.
std::optional<int> number_of(std::string_view text) {
  int number = 0;
  const char* const end = text.data() + text.size();
  const auto [next, error] = std::from_chars(text.data(), end, number);
  if (text.empty() || text[0] == '-' || error != std::errc() || next != end)
    return std::nullopt;
  return number;
}

bool exists(int signal) {
  return ::sigabbrev_np(signal) != nullptr || (SIGRTMIN <= signal && signal <= SIGRTMAX);
}

/// RTMIN, RTMIN+n, RTMAX or RTMAX-n.
std::optional<int> real_time(std::string_view name) {
  const bool up = name.starts_with("RTMIN");
  if (!up && !name.starts_with("RTMAX"))
    return std::nullopt;
  const std::string_view rest = name.substr(5);
  if (!rest.empty() && rest[0] != (up ? '+' : '-'))
    return std::nullopt;
  const auto distance = rest.empty() ? std::optional(0) : number_of(rest.substr(1));
  if (!distance || *distance > SIGRTMAX - SIGRTMIN)
    return std::nullopt;
  return up ? SIGRTMIN + *distance : SIGRTMAX - *distance;
}

/// Why a launcher cannot take this signal for its job, or nullptr.
const char* unfit(int signal) {
  switch (signal) {
  case SIGKILL:
  case SIGSTOP:
    return "no process can handle it";
  case SIGCHLD:
    return "the launcher needs it for itself";
  case SIGSEGV:
  case SIGBUS:
  case SIGILL:
  case SIGFPE:
    return "it tells of a fault of the launcher itself";
  default:
    return nullptr;
  }
}

} // namespace

std::optional<int> signal_from(const std::string& name) {
  std::string upper = name;
  std::transform(upper.begin(), upper.end(), upper.begin(), [](unsigned char c) {
    return static_cast<char>(std::toupper(c));
  });
  if (const auto number = number_of(upper))
    return exists(*number) ? number : std::nullopt;
  if (upper.starts_with("SIG"))
    upper.erase(0, 3);
  for (int signal = 1; signal < SIGRTMIN; ++signal)
    if (const char* const known = ::sigabbrev_np(signal); known && upper == known)
      return signal;
  if (upper == "IOT")
    return SIGIOT;
  if (upper == "CLD")
    return SIGCHLD;
  if (upper == "IO")
    return SIGIO;
  return real_time(upper);
}

std::string signal_name(int signal) {
  if (const char* const name = ::sigabbrev_np(signal))
    return fmt::format("SIG{}", name);
  if (signal == SIGRTMIN)
    return "SIGRTMIN";
  return exists(signal) ? fmt::format("SIGRTMIN+{}", signal - SIGRTMIN) : std::to_string(signal);
}

std::vector<int> parse_signals(const std::string& text, const std::string& subject) {
  std::vector<int> signals;
  std::istringstream parts(text + ",");
  for (std::string part; std::getline(parts, part, ',');) {
    const auto signal = signal_from(part);
    if (!signal)
      throw UsageError(fmt::format("{} '{}': '{}' is no signal; write names or numbers, such as "
                                   "TERM,USR1,RTMIN+3",
                                   subject,
                                   text,
                                   part));
    if (const char* const why = unfit(*signal))
      throw UsageError(fmt::format("{} '{}': {} cannot be among them: {}; leave it out",
                                   subject,
                                   text,
                                   signal_name(*signal),
                                   why));
    if (std::find(signals.begin(), signals.end(), *signal) == signals.end())
      signals.push_back(*signal);
  }
  return signals;
}

} // namespace muster::cli
