#include "shell_words.hpp"

#include <muster/launch/error.hpp>

#include <fmt/format.h>

namespace muster::cli {

namespace {

bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\n'; }

/// Whether a backslash makes the character after it plain.
bool is_escape(const std::string& text, std::size_t at, char quote) {
  if (text[at] != '\\' || quote == '\'' || at + 1 == text.size())
    return false;
  const char next = text[at + 1];
  return quote == 0 || next == '"' || next == '\\' || next == '$' || next == '`';
}

} // namespace

std::vector<std::string> shell_words(const std::string& text, const std::string& subject) {
  std::vector<std::string> words;
  bool inside = false; // of a word
  char quote = 0;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (quote == 0 && is_blank(c)) {
      inside = false;
      continue;
    }
    if (!inside)
      words.emplace_back();
    inside = true;
    if (is_escape(text, at, quote))
      words.back() += text[++at];
    else if (quote == 0 && (c == '\'' || c == '"'))
      quote = c;
    else if (quote != 0 && c == quote)
      quote = 0;
    else
      words.back() += c;
  }
  if (quote != 0)
    throw UsageError(fmt::format("{} '{}': the quote {} is not closed", subject, text, quote));
  return words;
}

} // namespace muster::cli
