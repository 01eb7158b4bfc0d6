#include "reader.hpp"

#include <cassert>
#include <charconv>

#include "flags.hpp"

namespace muster::cli {

Reader::Reader(const Words& words, const EnvSnapshot& environment)
    : words_(words), environment_(environment), problems_(words.problems) {}

std::optional<Given> Reader::find(const char* flag) const {
  const Flag* const entry = find_flag(std::string("--") + flag);
  assert(entry);
  for (const Flag& other : flags())
    if (&other == entry || (other.same_as && other.same_as == std::string(flag)))
      if (const auto found = words_.values.find(other.name); found != words_.values.end())
        return Given{to_string(other), found->second};
  if (const std::string variable = pet_variable(*entry); entry->pet)
    if (const std::string* const value = environment_.find(variable))
      return Given{variable, *value};
  if (entry->variable)
    if (const std::string* const value = environment_.find(entry->variable))
      return Given{entry->variable, *value};
  return std::nullopt;
}

void Reader::read(const char* flag, std::string& target) {
  read(flag, target, [](const Given& given) {
    if (given.text.empty())
      throw UsageError(given.subject + ": its value is empty; leave it out instead");
    return given.text;
  });
}

void Reader::read(const char* flag, bool& target) { read(flag, target, truth); }

std::string Reader::spell(const char* flag) const {
  const auto given = find(flag);
  return given ? fmt::format("{} '{}'", given->subject, given->text) : fmt::format("--{}", flag);
}

int whole(const Given& given, int least, int most) {
  int number = 0;
  const char* const end = given.text.data() + given.text.size();
  const auto [next, error] = std::from_chars(given.text.data(), end, number);
  if (error != std::errc() || next != end || number < least || number > most)
    throw UsageError(fmt::format("{} '{}': it must be a whole number from {} to {}",
                                 given.subject,
                                 given.text,
                                 least,
                                 most));
  return number;
}

bool truth(const Given& given) {
  const std::string& text = given.text;
  const bool yes = text == "1" || text == "true" || text == "True";
  if (!yes && text != "0" && text != "false" && text != "False")
    throw UsageError(fmt::format("{} '{}': it must be 1, true, 0 or false", given.subject, text));
  return yes;
}

} // namespace muster::cli
