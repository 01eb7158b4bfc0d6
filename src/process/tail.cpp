#include "tail.hpp"

#include <vector>

namespace muster::process {

namespace {

constexpr std::size_t most_unfinished = 2 * 1024;

/// Appends, and forgets the beginning from time to time so that `least` bytes stay.
void append_bounded(std::string& text, std::string_view more, std::size_t least) {
  if (more.size() >= least) {
    text = more.substr(more.size() - least);
    return;
  }
  if (text.size() + more.size() > least + least / 2)
    text.erase(0, text.size() + more.size() - least);
  text += more;
}

/// What is left to see of a line, without its end.
std::string_view visible(std::string_view line) noexcept {
  if (line.ends_with('\r'))
    line.remove_suffix(1);
  return line.substr(line.rfind('\r') + 1);
}

} // namespace

void Tail::add(std::size_t stream, std::string_view bytes) {
  std::string& unfinished = unfinished_[stream];
  const std::size_t end = bytes.rfind('\n') + 1;
  if (end > 0) {
    append_bounded(finished_, unfinished, least_bytes);
    append_bounded(finished_, bytes.substr(0, end), least_bytes);
    unfinished.clear();
  }
  append_bounded(unfinished, bytes.substr(end), most_unfinished);
}

std::string Tail::last(int lines) const {
  std::string all = finished_;
  for (const std::string& unfinished : unfinished_)
    if (!unfinished.empty())
      all += unfinished + '\n';
  std::vector<std::string_view> found;
  std::string_view rest = all;
  while (!rest.empty() && found.size() < static_cast<std::size_t>(lines > 0 ? lines : 0)) {
    rest.remove_suffix(1);
    const std::size_t begin = rest.rfind('\n') + 1;
    found.push_back(visible(rest.substr(begin)));
    rest = rest.substr(0, begin);
  }
  std::string text;
  for (auto line = found.rbegin(); line != found.rend(); ++line)
    text.append(*line).append("\n");
  return text;
}

} // namespace muster::process
