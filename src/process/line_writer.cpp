#include "line_writer.hpp"

#include <algorithm>
#include <cstring>

namespace muster::process {

namespace {

constexpr std::size_t kept_capacity = 64 * 1024;

const char* find(const char* begin, const char* end, char byte) noexcept {
  const void* at = std::memchr(begin, byte, static_cast<std::size_t>(end - begin));
  return at != nullptr ? static_cast<const char*>(at) : end;
}

std::string_view view(const char* begin, const char* end) noexcept {
  return {begin, static_cast<std::size_t>(end - begin)};
}

/// The bytes of a UTF-8 character by its first one; 1 for what is not UTF-8.
std::size_t character_size(char first) noexcept {
  const auto byte = static_cast<unsigned char>(first);
  return byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : byte >= 0xc0 ? 2 : 1;
}

/// The size of `text` without a UTF-8 character that has only begun.
std::size_t whole_characters(std::string_view text) noexcept {
  for (std::size_t back = 1; back <= std::min<std::size_t>(3, text.size()); ++back) {
    const char byte = text[text.size() - back];
    if ((static_cast<unsigned char>(byte) & 0xc0) == 0x80)
      continue;
    return character_size(byte) > back ? text.size() - back : text.size();
  }
  return text.size();
}

} // namespace

void LineWriter::add(std::string_view bytes, Clock::time_point now) {
  if (bytes.empty())
    return;
  if (unfinished_.ends_with('\r')) {
    if (bytes.front() == '\n') {
      unfinished_ += '\n';
      bytes.remove_prefix(1);
    }
    write(unfinished_, true);
    release();
  }
  hold(take_lines(bytes, now), now);
}

/// Returns what follows the last line end; a '\r' that is the last byte may become a "\r\n".
std::string_view LineWriter::take_lines(std::string_view bytes, Clock::time_point now) {
  const char* begin = bytes.data();
  const char* const end = begin + bytes.size();
  const char* newline = find(begin, end, '\n');
  const char* ret = find(begin, end, '\r');
  while (std::min(newline, ret) != end) {
    if (ret < newline && ret + 1 == end)
      break;
    const char* last = std::min(newline, ret);
    if (last == ret && last + 1 == newline)
      last = newline;
    take_line(view(begin, last + 1), now);
    begin = last + 1;
    if (newline < begin)
      newline = find(begin, end, '\n');
    if (ret < begin)
      ret = find(begin, end, '\r');
  }
  return view(begin, end);
}

void LineWriter::take_line(std::string_view line, Clock::time_point now) {
  if (unfinished_.empty() && line.size() <= longest_line)
    return write(line, true);
  hold(line, now);
  write(unfinished_, true);
  release();
}

void LineWriter::hold(std::string_view part, Clock::time_point now) {
  if (unfinished_.empty())
    began_ = now;
  while (unfinished_.size() + part.size() > longest_line) {
    const std::size_t fits = longest_line - unfinished_.size();
    unfinished_ += part.substr(0, fits);
    part.remove_prefix(fits);
    split(now);
  }
  unfinished_ += part;
}

void LineWriter::split(Clock::time_point now) {
  if (unfinished_.ends_with('\r')) {
    write(unfinished_, true);
    return release();
  }
  std::size_t size = whole_characters(unfinished_);
  if (size == 0)
    size = unfinished_.size();
  const std::string begun = unfinished_.substr(size);
  unfinished_.resize(size);
  unfinished_ += '\n';
  write(unfinished_, false);
  release();
  unfinished_ = begun;
  began_ = now;
}

void LineWriter::finish() {
  if (unfinished_.empty())
    return;
  if (!unfinished_.ends_with('\r'))
    unfinished_ += '\n';
  write(unfinished_, true);
  release();
}

void LineWriter::write(std::string_view line, bool ends) {
  if (when_full_ == WhenFull::drop && console_.full())
    ++dropped_;
  else
    console_.append(prefix_, continues_ ? "+ " : "", line);
  continues_ = !ends;
}

void LineWriter::release() {
  unfinished_.clear();
  if (unfinished_.capacity() > kept_capacity)
    unfinished_.shrink_to_fit();
}

std::optional<LineWriter::Clock::time_point> LineWriter::deadline() const {
  if (unfinished_.empty())
    return std::nullopt;
  return began_ + longest_wait;
}

} // namespace muster::process
