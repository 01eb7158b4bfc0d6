#include "error_file.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <string_view>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "../process/sys.hpp"

namespace muster::process {

namespace {

constexpr std::size_t kept_bytes = 64 * 1024;
constexpr std::size_t read_bytes = 1024 * 1024;

bool continues(char byte) { return (static_cast<unsigned char>(byte) & 0xC0U) == 0x80U; }

/// Bytes of the UTF-8 character at the front of `text`, 0 if there is none.
std::size_t character_bytes(std::string_view text) {
  const auto first = static_cast<unsigned char>(text[0]);
  const std::size_t size = first < 0x80   ? 1
                           : first < 0xC2 ? 0
                           : first < 0xE0 ? 2
                           : first < 0xF0 ? 3
                           : first < 0xF5 ? 4
                                          : 0;
  if (size == 0 || size > text.size())
    return 0;
  return std::all_of(text.begin() + 1, text.begin() + static_cast<std::ptrdiff_t>(size), continues)
             ? size
             : 0;
}

/// `text` with control characters, which could command a terminal, and invalid bytes as \x1b.
std::string printable(std::string_view text) {
  std::string result;
  while (!text.empty()) {
    const auto byte = static_cast<unsigned char>(text[0]);
    const std::size_t size = character_bytes(text);
    const bool control = (byte < 0x20 && byte != '\n' && byte != '\t') || byte == 0x7F ||
                         (byte == 0xC2 && size == 2 && static_cast<unsigned char>(text[1]) < 0xA0);
    if (size == 0 || control)
      result += fmt::format("\\x{:02x}", byte);
    else
      result += text.substr(0, size);
    text.remove_prefix(control || size == 0 ? 1 : size);
  }
  return result;
}

enum class Keep { beginning, end };

/// What is shown of `text`, with a mark where it was cut.
std::string shown(std::string_view text, Keep keep) {
  constexpr std::string_view mark = "[...]";
  const auto last = text.find_last_not_of(" \t\r\n");
  text = text.substr(0, last == std::string_view::npos ? 0 : last + 1);
  bool cut = text.size() > kept_bytes;
  if (cut)
    text = keep == Keep::beginning ? text.substr(0, kept_bytes)
                                   : text.substr(text.size() - kept_bytes);
  std::string result = printable(text);
  cut = cut || result.size() > kept_bytes;
  if (!cut)
    return result;
  const std::size_t room = kept_bytes - mark.size();
  if (keep == Keep::beginning) {
    std::size_t end = std::min(room, result.size());
    while (end < result.size() && end > 0 && continues(result[end]))
      --end;
    return result.substr(0, end).append(mark);
  }
  std::size_t begin = result.size() - std::min(room, result.size());
  while (begin < result.size() && continues(result[begin]))
    ++begin;
  return std::string(mark).append(result, begin);
}

std::optional<double> to_number(const std::string& text) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(number)
                                                                  : std::nullopt;
}

/// Picks the known values out of JSON as it is read: nothing is built, so depth and size do not
/// matter, and what stood before a cut is found.
class ErrorReader : public nlohmann::json_sax<nlohmann::json> {
public:
  std::optional<std::string> flat_message;
  std::optional<std::string> nested_message;
  std::string traceback;
  std::optional<double> time;

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t value) override {
    return number(static_cast<double>(value));
  }
  bool number_unsigned(number_unsigned_t value) override {
    return number(static_cast<double>(value));
  }
  bool number_float(number_float_t value, const string_t&) override { return number(value); }
  bool binary(binary_t&) override { return true; }
  bool start_object(std::size_t) override { return enter(""); }
  bool start_array(std::size_t) override { return enter("[]"); }
  bool end_object() override { return leave(); }
  bool end_array() override { return leave(); }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception&) override {
    return false;
  }
  bool key(string_t& name) override {
    if (depth_ <= keys_.size())
      keys_[depth_ - 1] = std::move(name);
    return true;
  }
  bool string(string_t& value) override;

private:
  bool enter(const char* key) {
    if (depth_++ < keys_.size())
      keys_[depth_ - 1] = key;
    return true;
  }
  bool leave() {
    --depth_;
    return true;
  }
  bool is_at(std::initializer_list<std::string_view> keys) const {
    return depth_ == keys.size() && std::equal(keys.begin(), keys.end(), keys_.begin());
  }
  bool at_time() const {
    return is_at({"timestamp"}) || is_at({"message", "extraInfo", "timestamp"});
  }
  bool number(double value) {
    if (at_time() && std::isfinite(value))
      time = value;
    return true;
  }

  std::size_t depth_ = 0;
  std::array<std::string, 3> keys_;
};

bool ErrorReader::string(string_t& value) {
  if (is_at({"message"}))
    flat_message = std::move(value);
  else if (is_at({"message", "message"}))
    nested_message = std::move(value);
  else if (is_at({"message", "extraInfo", "py_callstack"}))
    traceback = std::move(value);
  else if (const auto seconds = to_number(value); at_time() && seconds)
    number(*seconds);
  return true;
}

/// "ValueError: text" is cut in two where a type's name stands before the colon.
void split(const std::string& message, ErrorText& error) {
  const auto is_name = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '.';
  };
  const auto colon = std::find_if_not(message.begin(), message.end(), is_name);
  const auto length = static_cast<std::size_t>(colon - message.begin());
  const bool typed = length > 0 && message.compare(length, 2, ": ") == 0;
  if (typed)
    error.type = shown(message.substr(0, length), Keep::beginning);
  error.message = shown(std::string_view(message).substr(typed ? length + 2 : 0), Keep::beginning);
}

/// Makes `path` and the folders above it, as far as they are missing.
void make_folders(const std::string& path) {
  for (std::size_t end = 0; end != std::string::npos;) {
    end = path.find('/', end + 1);
    const std::string folder = path.substr(0, end);
    if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST && end == std::string::npos)
      throw SystemError(fmt::format("making the log folder {}", path), errno);
  }
}

/// Ranks may have another working directory than the launcher.
std::string absolute(const std::string& folder) {
  const std::unique_ptr<char, decltype(&std::free)> path(::realpath(folder.c_str(), nullptr),
                                                         &std::free);
  if (!path)
    throw SystemError(fmt::format("finding the log folder {}", folder), errno);
  return path.get();
}

/// DIRECTORY/attempt_N/RANK/error.json, free for the rank to make.
std::string make_place(const std::string& directory, int attempt, int rank) {
  const std::string folder = fmt::format("{}/attempt_{}/{}", directory, attempt, rank);
  make_folders(folder);
  std::string path = absolute(folder) + "/error.json";
  if (::rename(path.c_str(), (path + ".1").c_str()) != 0 && errno != ENOENT)
    throw SystemError(fmt::format("renaming {}, which an earlier job left", path), errno);
  return path;
}

Fd make_memory_file() {
  return Fd(sys::checked("making a file for a rank's error",
                         [] { return ::memfd_create("muster error", MFD_CLOEXEC); }));
}

} // namespace

std::optional<ErrorText> parse_error_file(const std::string& bytes) {
  if (bytes.find_first_not_of(" \t\r\n") == std::string::npos)
    return std::nullopt;
  ErrorReader reader;
  nlohmann::json::sax_parse(bytes, &reader);
  ErrorText error;
  error.time = reader.time;
  error.traceback = shown(reader.traceback, Keep::end);
  if (reader.nested_message)
    split(*reader.nested_message, error);
  else
    error.message = shown(reader.flat_message.value_or(bytes), Keep::beginning);
  return error;
}

ErrorFiles::ErrorFiles(const std::string& directory, int attempt, const std::vector<int>& ranks) {
  for (const int rank : ranks) {
    File file;
    if (directory.empty()) {
      file.memory = make_memory_file();
      file.path = fmt::format("/proc/{}/fd/{}", ::getpid(), file.memory.get());
    } else {
      file.path = make_place(directory, attempt, rank);
    }
    files_.push_back(std::move(file));
  }
}

std::string ErrorFiles::read(std::size_t i) const {
  const File& file = files_.at(i);
  Fd opened;
  if (!file.memory)
    opened = Fd(::open(file.path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  const int fd = file.memory ? file.memory.get() : opened.get();
  struct stat info {};
  if (fd < 0 || ::fstat(fd, &info) != 0 || !S_ISREG(info.st_mode))
    return "";
  std::string bytes(read_bytes, '\0');
  std::size_t size = 0;
  for (ssize_t got = 1; got > 0 && size < bytes.size();) {
    got = ::pread(fd, bytes.data() + size, bytes.size() - size, static_cast<off_t>(size));
    if (got < 0 && errno == EINTR)
      got = 1;
    else if (got > 0)
      size += static_cast<std::size_t>(got);
  }
  bytes.resize(size);
  return bytes;
}

} // namespace muster::process
