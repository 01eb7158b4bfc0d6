#include "executable.hpp"

#include <muster/launch/error.hpp>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <sstream>

#include <elf.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <fmt/format.h>

#include "binfmt_misc.hpp"
#include "elf.hpp"
#include "fd.hpp"

namespace muster::process {

namespace {

using Problem = std::optional<ExecProblem>;

constexpr std::size_t head_bytes = 256; ///< the kernel looks at no more
constexpr int deepest = 5;              ///< scripts whose interpreter is a script

Problem problem_of(const std::string& path, int depth);

std::string text_of(int error) {
  const char* text = ::strerrordesc_np(error);
  return text ? text : fmt::format("error {}", error);
}

std::string current_directory() {
  const std::unique_ptr<char, decltype(&std::free)> path(::getcwd(nullptr, 0), &std::free);
  return path ? path.get() : "a directory that was removed";
}

bool is_file(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode);
}

bool may_execute(const std::string& path) {
  return ::faccessat(AT_FDCWD, path.c_str(), X_OK, AT_EACCESS) == 0;
}

/// The first bytes of a file; empty if it cannot be read.
std::string head_of(const Fd& file) {
  std::string head(head_bytes, '\0');
  const ssize_t got = ::pread(file.get(), head.data(), head.size(), 0);
  head.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
  return head;
}

Fd open_file(const std::string& path) {
  return Fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
}

Problem missing(const std::string& path, int error) {
  struct stat link {};
  if (error == EACCES)
    return ExecProblem{error, "cannot be reached: a folder on the way to it may not be entered"};
  if (error != ENOENT && error != ENOTDIR)
    return ExecProblem{error, fmt::format("cannot be reached: {}", text_of(error))};
  if (error == ENOENT && ::lstat(path.c_str(), &link) == 0)
    return ExecProblem{error, "is a symbolic link to a file that is not there"};
  const std::string from =
      path.starts_with('/') ? "" : fmt::format(" (seen from {})", current_directory());
  return ExecProblem{error, fmt::format("is not there{}; check the path", from)};
}

/// The folders of PATH; "." for an empty entry.
std::vector<std::string> search_folders(const std::string& path) {
  std::vector<std::string> folders;
  for (std::size_t begin = 0; begin <= path.size();) {
    const std::size_t end = std::min(path.find(':', begin), path.size());
    folders.push_back(end == begin ? "." : path.substr(begin, end - begin));
    begin = end + 1;
  }
  return folders;
}

std::string search_path() {
  if (const char* path = std::getenv("PATH"))
    return path;
  std::string standard(::confstr(_CS_PATH, nullptr, 0), '\0');
  ::confstr(_CS_PATH, standard.data(), standard.size());
  return standard.substr(0, standard.find('\0'));
}

bool in_search_path(const std::string& name) {
  const auto folders = search_folders(search_path());
  return std::any_of(folders.begin(), folders.end(), [&](const std::string& folder) {
    const std::string path = folder + "/" + name;
    return is_file(path) && may_execute(path);
  });
}

/// The first line of a script: "#!interpreter argument".
struct FirstLine {
  explicit FirstLine(const std::string& head) {
    constexpr const char* blank = " \t";
    std::string line = head.substr(2, head.find('\n') - 2);
    line.erase(0, line.find_first_not_of(blank));
    line.resize(line.find_last_not_of(blank) + 1);
    const std::size_t end = line.find_first_of(std::string(" \t\0", 3));
    interpreter = line.substr(0, end);
    if (end != std::string::npos)
      argument = line.substr(std::min(line.find_first_not_of(blank, end), line.size()));
  }

  std::string interpreter;
  std::string argument;
};

Problem carriage_return(int error, std::string interpreter) {
  interpreter.pop_back();
  return ExecProblem{error,
                     fmt::format("has lines that end in CR LF, as on Windows, so that its "
                                 "interpreter would be '{}\\r'; remove the CRs: sed -i 's/\\r$//'",
                                 interpreter)};
}

/// The program that "#!/usr/bin/env program" asks for.
Problem env_problem(const FirstLine& line) {
  const std::string& program = line.argument;
  if (program.ends_with('\r'))
    return carriage_return(0, program);
  if (!line.interpreter.ends_with("/env") || program.empty() || program[0] == '-' ||
      program.find_first_of(" \t=/") != std::string::npos || in_search_path(program))
    return std::nullopt;
  return ExecProblem{0,
                     fmt::format("is a script for {}, which is not in PATH; install it, or correct "
                                 "the script's first line",
                                 program)};
}

Problem script_problem(const std::string& head, int depth) {
  const FirstLine line(head);
  if (line.interpreter.empty() ||
      (line.argument.empty() && head.size() == head_bytes && head.find('\n') == std::string::npos))
    return ExecProblem{ENOEXEC, "begins with '#!', but not with the path of an interpreter"};
  if (line.interpreter.ends_with('\r'))
    return carriage_return(ENOENT, line.interpreter);
  if (depth == deepest)
    return ExecProblem{ELOOP, "is a script whose interpreter is a script, and so on for ever"};
  if (const Problem inner = problem_of(line.interpreter, depth + 1))
    return ExecProblem{
        inner->error,
        fmt::format("is a script whose first line names the interpreter {}, which {}",
                    line.interpreter,
                    inner->text)};
  return env_problem(line);
}

Problem format_problem(const std::string& path, int depth) {
  const Fd file = open_file(path);
  if (!file)
    return std::nullopt; // it may be executed, yet not be read
  const std::string head = head_of(file);
  if (head.empty())
    return ExecProblem{ENOEXEC, "is empty; build or copy it again"};
  if (has_binfmt_handler(path, head))
    return std::nullopt;
  if (head.starts_with(ELFMAG))
    return elf_problem(file.get());
  if (head.starts_with("#!"))
    return script_problem(head, depth);
  if (head.starts_with("\xEF\xBB\xBF#!"))
    return ExecProblem{ENOEXEC,
                       "begins with a byte order mark, not with '#!'; save it without one"};
  return ExecProblem{ENOEXEC,
                     "is neither a program (ELF) nor a script that begins with '#!'; let its first "
                     "line name the interpreter, such as #!/bin/sh"};
}

/// What exec of `path` would fail for; `depth` counts scripts that this is the interpreter of.
Problem problem_of(const std::string& path, int depth) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0)
    return missing(path, errno);
  if (S_ISDIR(info.st_mode))
    return ExecProblem{EACCES, "is a directory; name a program in it"};
  if (!S_ISREG(info.st_mode))
    return ExecProblem{EACCES, "is not a regular file, but a device, pipe or socket"};
  struct statvfs system {};
  if (::statvfs(path.c_str(), &system) == 0 && (system.f_flag & ST_NOEXEC) != 0)
    return ExecProblem{EACCES,
                       "lies in a file system that is mounted with noexec; copy it elsewhere"};
  if (!may_execute(path))
    return ExecProblem{EACCES, fmt::format("has no execute permission; run chmod +x {}", path)};
  return format_problem(path, depth);
}

[[noreturn]] void refuse(const std::string& path, const ExecProblem& problem) {
  struct stat info {};
  const bool found = ::lstat(path.c_str(), &info) == 0 || problem.error == EACCES;
  throw ProgramError(fmt::format("{} {}", path, problem.text),
                     found ? ProgramError::Kind::not_executable : ProgramError::Kind::not_found);
}

[[noreturn]] void refuse_unknown(const std::string& name, const std::string& path) {
  throw ProgramError(
      fmt::format("{} is not in PATH ({}); {}",
                  name,
                  path,
                  is_file(name)
                      ? fmt::format("write ./{} for the one in the current directory", name)
                      : "write its path, or add its folder to PATH"),
      ProgramError::Kind::not_found);
}

/// The kernel's limits for a new process.
struct ExecLimits {
  std::uint64_t string_bytes = 32 * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  std::uint64_t total_bytes = 0;

  ExecLimits() {
    constexpr std::uint64_t least = 128 * 1024;
    constexpr std::uint64_t most = 6 * 1024 * 1024;
    struct rlimit stack {};
    ::getrlimit(RLIMIT_STACK, &stack);
    total_bytes = std::clamp<std::uint64_t>(stack.rlim_cur / 4, least, most);
  }
};

std::string explain_size(const std::string& path, const ExecSizes& sizes) {
  const ExecLimits limits;
  if (sizes.longest_bytes > limits.string_bytes)
    return fmt::format("{}: {} has {} bytes, and the kernel takes at most {} for one string; write "
                       "it to a file",
                       path,
                       sizes.longest,
                       sizes.longest_bytes,
                       limits.string_bytes);
  return fmt::format(
      "{}: arguments and environment have {} bytes, and the kernel takes at most {} (a quarter of "
      "the stack limit, up to 6 MiB) and {} for one string; shorten them, or raise ulimit -s",
      path,
      sizes.total_bytes == 0 ? "too many" : std::to_string(sizes.total_bytes),
      limits.total_bytes,
      limits.string_bytes);
}

} // namespace

std::string find_program(const std::string& name) {
  if (name.empty())
    throw ProgramError("the program's name is empty; name one", ProgramError::Kind::not_found);
  if (name.find('/') != std::string::npos) {
    if (const Problem problem = problem_of(name, 0))
      refuse(name, *problem);
    return name;
  }
  std::optional<std::pair<std::string, ExecProblem>> refused;
  const std::string search = search_path();
  for (const std::string& folder : search_folders(search)) {
    std::string path = folder + "/" + name;
    if (!is_file(path))
      continue;
    const Problem problem = problem_of(path, 0);
    if (!problem)
      return path;
    if (problem->error != ENOENT && problem->error != EACCES)
      refuse(path, *problem);
    if (!refused)
      refused = {path, *problem};
  }
  if (refused)
    refuse(refused->first, refused->second);
  refuse_unknown(name, search);
}

ExecSizes exec_sizes(const std::vector<std::string>& argv,
                     const std::vector<std::string>& environment) {
  ExecSizes sizes;
  const auto add = [&](const std::string& string, const std::string& name) {
    sizes.total_bytes += string.size() + 1 + sizeof(char*);
    if (string.size() + 1 <= sizes.longest_bytes)
      return;
    sizes.longest_bytes = string.size() + 1;
    sizes.longest = name;
  };
  for (std::size_t i = 0; i < argv.size(); ++i)
    add(argv[i], i == 0 ? "the program's name" : fmt::format("argument {}", i));
  for (const std::string& variable : environment)
    add(variable, "the variable " + variable.substr(0, variable.find('=')));
  return sizes;
}

std::string explain_exec_error(const std::string& path, int error, const ExecSizes& sizes) {
  if (error == E2BIG)
    return explain_size(path, sizes);
  if (error == ETXTBSY)
    return fmt::format("{} is being written to; start it when its build or copy has finished",
                       path);
  const Problem problem = problem_of(path, 0);
  if (problem && problem->error == error)
    return fmt::format("{} {}", path, problem->text);
  if (error == ENOENT && is_file(path))
    return fmt::format("{} is there, but its interpreter or dynamic loader is not; see its first "
                       "line, or readelf -l",
                       path);
  if (error == EACCES)
    return fmt::format("{} may not be executed: a security module or the file system forbids it",
                       path);
  if (error == ENOEXEC)
    return fmt::format("{} is in a format that this machine cannot execute; build it here", path);
  return fmt::format("{} cannot be executed: {}", path, text_of(error));
}

} // namespace muster::process
