#include "units.hpp"

#include <muster/launch/error.hpp>

#include <array>
#include <charconv>
#include <cmath>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include <fmt/format.h>

namespace muster::cli {

namespace {

using Unit = std::pair<std::string_view, double>;

constexpr auto times = std::to_array<Unit>(
    {{"", 1e3}, {"s", 1e3}, {"ms", 1}, {"m", 6e4}, {"h", 3.6e6}, {"d", 8.64e7}});

constexpr auto sizes =
    std::to_array<Unit>({{"", 1}, {"K", 0x1p10}, {"M", 0x1p20}, {"G", 0x1p30}, {"T", 0x1p40}});

/// A decimal number, perhaps with a fraction, times its unit; nullopt if `text` is no such thing.
std::optional<double> quantity(std::string_view text, std::span<const Unit> units) {
  double number = 0;
  const char* const end = text.data() + text.size();
  const auto [next, error] = std::from_chars(text.data(), end, number, std::chars_format::fixed);
  if (error != std::errc() || !std::isfinite(number))
    return std::nullopt;
  const std::string_view suffix(next, static_cast<std::size_t>(end - next));
  for (const auto& [name, factor] : units)
    if (suffix == name)
      return number * factor;
  return std::nullopt;
}

} // namespace

std::chrono::milliseconds parse_duration(const std::string& text, const std::string& subject) {
  constexpr double most = 8.64e7 * 36500;
  const auto found = quantity(text, times);
  if (!found)
    throw UsageError(fmt::format(
        "{} '{}': write a time as seconds or with a unit, such as 90, 1.5m, 2h or 500ms",
        subject,
        text));
  if (std::signbit(*found))
    throw UsageError(fmt::format("{} '{}': a time cannot be negative", subject, text));
  if (*found > most)
    throw UsageError(fmt::format("{} '{}': the longest time is 36500d", subject, text));
  return std::chrono::milliseconds(static_cast<std::int64_t>(std::ceil(*found)));
}

std::uint64_t parse_size(const std::string& text, const std::string& subject) {
  const auto found = quantity(text, sizes);
  if (!found || std::signbit(*found) || *found > 0x1p60)
    throw UsageError(fmt::format(
        "{} '{}': write a size in bytes or with a unit, such as 4096, 64M or 1.5G", subject, text));
  return static_cast<std::uint64_t>(*found);
}

} // namespace muster::cli
