#pragma once

#include <string>
#include <vector>

namespace muster::cli {

/// Splits at blanks; '…', "…" and \ quote as in a shell, and nothing else is special. Throws
/// UsageError that quotes `text` and begins with `subject` if a quote is not closed.
std::vector<std::string> shell_words(const std::string& text, const std::string& subject);

} // namespace muster::cli
