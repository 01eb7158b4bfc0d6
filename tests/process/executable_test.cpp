#include <muster/launch/error.hpp>

#include <cerrno>
#include <cstring>

#include <elf.h>
#include <fcntl.h>
#include <sched.h>
#include <spawn.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "catch.hpp"
#include "folder.hpp"
#include "process/binfmt_misc.hpp"
#include "process/executable.hpp"

using Catch::Contains;
using muster::ProgramError;
using muster::process::exec_sizes;
using muster::process::explain_exec_error;
using muster::process::find_program;

namespace {

using Words = std::vector<std::string>;

/// The error that exec of `path` gives, 0 if it starts.
int exec_error(const std::string& path) {
  std::string name = path;
  char* argv[] = {name.data(), nullptr};
  pid_t pid = 0;
  const int error = ::posix_spawn(&pid, path.c_str(), nullptr, nullptr, argv, ::environ);
  if (error == 0)
    ::waitpid(pid, nullptr, 0);
  return error;
}

/// find_program's error for `name`, which must have this exit code.
std::string refusal(const std::string& name, int exit_code) {
  try {
    find_program(name);
  } catch (const ProgramError& error) {
    CHECK(error.exit_code() == exit_code);
    CHECK(std::string(error.what()).find('\n') == std::string::npos);
    return error.what();
  }
  return name + " was not refused";
}

/// The same for a file that exec refuses, too, with `error`.
std::string refusal_of_file(const std::string& path, int error) {
  CHECK(exec_error(path) == error);
  return refusal(path, 126);
}

std::string bytes_of(const void* object, std::size_t size) {
  return {static_cast<const char*>(object), size};
}

/// The beginning of a program for this machine, of this type.
Elf64_Ehdr own_header(Elf64_Half type) {
  Elf64_Ehdr header{};
  std::ifstream self("/proc/self/exe", std::ios::binary);
  self.read(reinterpret_cast<char*>(&header), sizeof(header));
  header.e_type = type;
  header.e_phoff = sizeof(header);
  header.e_phnum = 0;
  return header;
}

std::string program_with_loader(const std::string& loader) {
  Elf64_Ehdr header = own_header(ET_DYN);
  header.e_phnum = 1;
  Elf64_Phdr segment{};
  segment.p_type = PT_INTERP;
  segment.p_offset = sizeof(header) + sizeof(segment);
  segment.p_filesz = loader.size() + 1;
  return bytes_of(&header, sizeof(header)) + bytes_of(&segment, sizeof(segment)) + loader + '\0';
}

/// Mounts an empty file system over `path` that only this process sees.
bool mount_noexec(const std::string& path) {
  const uid_t user = ::geteuid();
  const gid_t group = ::getegid();
  if (::unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0)
    return false;
  std::ofstream("/proc/self/setgroups") << "deny";
  std::ofstream("/proc/self/uid_map") << "0 " << user << " 1";
  std::ofstream("/proc/self/gid_map") << "0 " << group << " 1";
  return ::mount("none", path.c_str(), "tmpfs", MS_NOEXEC, nullptr) == 0 &&
         ::access(path.c_str(), W_OK) == 0;
}

constexpr const char* script = "#!/bin/sh\nexit 0\n";

} // namespace

TEST_CASE("a program is found as execvp finds it", "[executable]") {
  const test::Folder folder;
  const std::string program = folder.write("b/train", script, 0755);
  folder.write("a/train", script, 0644);
  folder.write("c/train", script, 0755);
  std::filesystem::create_directories(folder / "d/train");
  const std::string path =
      (folder / "none:") + (folder / "d:") + (folder / "a:") + (folder / "b:") + (folder / "c");
  const test::Variable variable("PATH", path.c_str());
  CHECK(find_program("train") == program);
  CHECK(find_program(program) == program);
  CHECK(exec_error(program) == 0);
}

TEST_CASE("an empty part of PATH is the current directory", "[executable]") {
  const test::Folder folder;
  folder.write("train", script, 0755);
  const test::Directory here(folder.path());
  const test::Variable variable("PATH", "/nowhere:");
  CHECK(find_program("train") == "./train");
  CHECK(find_program("./train") == "./train");
}

TEST_CASE("without a PATH the system's own is searched", "[executable]") {
  const test::Variable variable("PATH", nullptr);
  CHECK(find_program("sh").ends_with("/sh"));
}

TEST_CASE("a program that is nowhere is 127, and one beside us is suggested", "[executable]") {
  const test::Folder folder;
  folder.write("train", script, 0755);
  const test::Directory here(folder.path());
  const test::Variable variable("PATH", "/nowhere:/neither");
  CHECK_THAT(refusal("train", 127),
             Contains("train is not in PATH (/nowhere:/neither)") && Contains("./train"));
  CHECK_THAT(refusal("other", 127), Contains("write its path"));
  CHECK_THAT(refusal("./other", 127), Contains("./other is not there (seen from"));
  CHECK_THAT(refusal("./train/x", 127), Contains("./train/x is not there"));
  CHECK_THAT(refusal("", 127), Contains("empty"));
}

TEST_CASE("a directory, a pipe and a file without execute permission are 126", "[executable]") {
  const test::Folder folder;
  CHECK_THAT(refusal_of_file(folder.path(), EACCES), Contains(folder.path() + " is a directory"));
  const std::string plain = folder.write("plain", script, 0644);
  CHECK_THAT(refusal_of_file(plain, EACCES), Contains("chmod +x " + plain));
  const std::string pipe = folder / "pipe";
  REQUIRE(::mkfifo(pipe.c_str(), 0755) == 0);
  CHECK_THAT(refusal_of_file(pipe, EACCES), Contains("not a regular file"));
  const std::string link = folder / "link";
  REQUIRE(::symlink("nowhere", link.c_str()) == 0);
  CHECK_THAT(refusal_of_file(link, ENOENT), Contains("is a symbolic link"));
  REQUIRE(::symlink("loop", (folder / "loop").c_str()) == 0);
  CHECK_THAT(refusal_of_file(folder / "loop", ELOOP), Contains("cannot be reached"));
}

TEST_CASE("a file in PATH that cannot be executed is told where there is no other",
          "[executable]") {
  const test::Folder folder;
  const std::string plain = folder.write("train", script, 0644);
  const test::Variable variable("PATH", folder.path().c_str());
  CHECK_THAT(refusal("train", 126), Contains(plain + " has no execute permission"));
}

TEST_CASE("a file system that is mounted with noexec is told", "[executable]") {
  const test::Folder folder;
  const pid_t pid = ::fork();
  REQUIRE(pid >= 0);
  if (pid == 0) {
    if (!mount_noexec(folder.path()))
      ::_exit(77);
    const std::string text = refusal(folder.write("train", script, 0755), 126);
    ::_exit(text.find("mounted with noexec") == std::string::npos ? 1 : 0);
  }
  int status = 0;
  REQUIRE(::waitpid(pid, &status, 0) == pid);
  REQUIRE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 77)
    WARN("a process may not make mounts of its own here");
  else
    CHECK(WEXITSTATUS(status) == 0);
}

TEST_CASE("a script's missing interpreter is named", "[executable]") {
  const test::Folder folder;
  CHECK_THAT(refusal_of_file(folder.write("a", "#! /no/python3  -u \nx", 0755), ENOENT),
             Contains("interpreter /no/python3, which is not there"));
  CHECK_THAT(refusal_of_file(folder.write("b", "#!/no/python3", 0755), ENOENT),
             Contains("interpreter /no/python3, which is not there"));
  const std::string plain = folder.write("plain", script, 0644);
  CHECK_THAT(refusal_of_file(folder.write("c", "#!" + plain + "\n", 0755), EACCES),
             Contains("interpreter " + plain + ", which has no execute permission"));
  CHECK_THAT(refusal_of_file(folder.write("d", "#!\n", 0755), ENOEXEC),
             Contains("not with the path of an interpreter"));
  CHECK_THAT(refusal_of_file(folder.write("e", "#!/" + std::string(300, 'x'), 0755), ENOEXEC),
             Contains("not with the path of an interpreter"));
}

TEST_CASE("a script whose interpreter is a script is fine, but not for ever", "[executable]") {
  const test::Folder folder;
  const std::string first = folder.write("first", script, 0755);
  const std::string second = folder.write("second", "#!" + first + "\n", 0755);
  CHECK(find_program(second) == second);
  CHECK(exec_error(second) == 0);
  const std::string loop = folder.write("loop", "#!" + (folder / "loop") + "\n", 0755);
  CHECK_THAT(refusal_of_file(loop, ELOOP), Contains("for ever"));
}

TEST_CASE("lines that end in CR LF are told", "[executable]") {
  const test::Folder folder;
  CHECK_THAT(refusal_of_file(folder.write("a", "#!/bin/sh\r\nexit\r\n", 0755), ENOENT),
             Contains("CR LF") && Contains("'/bin/sh\\r'"));
  CHECK_THAT(refusal(folder.write("b", "#!/usr/bin/env python3\r\n", 0755), 126),
             Contains("CR LF") && Contains("'python3\\r'"));
}

TEST_CASE("a program that env would not find is told", "[executable]") {
  const test::Folder folder;
  CHECK_THAT(refusal(folder.write("a", "#!/usr/bin/env no-such-python\n", 0755), 126),
             Contains("a script for no-such-python, which is not in PATH"));
  for (const char* line : {"#!/usr/bin/env sh\n", "#!/usr/bin/env -S sh -e\n"}) {
    const std::string path = folder.write("b", line, 0755);
    CHECK(find_program(path) == path);
  }
}

TEST_CASE("a file that is no program at all is told", "[executable]") {
  const test::Folder folder;
  CHECK_THAT(refusal_of_file(folder.write("a", "echo\n", 0755), ENOEXEC),
             Contains("neither a program (ELF) nor a script"));
  CHECK_THAT(refusal_of_file(folder.write("b", "", 0755), ENOEXEC), Contains("is empty"));
  CHECK_THAT(
      refusal_of_file(folder.write("c", std::string("\xEF\xBB\xBF") + script, 0755), ENOEXEC),
      Contains("byte order mark"));
}

TEST_CASE("a program for another machine is told with both names", "[executable]") {
  const test::Folder folder;
  Elf64_Ehdr header{};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_ident[EI_DATA] = ELFDATA2LSB;
  header.e_type = ET_EXEC;
  header.e_machine = EM_AARCH64;
  std::string other = "aarch64";
  if (own_header(ET_EXEC).e_machine == EM_AARCH64) {
    header.e_machine = EM_X86_64;
    other = "x86_64";
  }
  CHECK_THAT(refusal_of_file(folder.write("a", bytes_of(&header, sizeof(header)), 0755), ENOEXEC),
             Contains("is built for " + other + " (64 bit, little endian), and this machine is "));

  Elf64_Ehdr small = own_header(ET_EXEC);
  small.e_ident[EI_CLASS] = ELFCLASS32;
  CHECK_THAT(refusal_of_file(folder.write("b", bytes_of(&small, sizeof(small)), 0755), ENOEXEC),
             Contains("(32 bit, ") && Contains("(64 bit, "));

  header.e_ident[EI_DATA] = ELFDATA2MSB;
  header.e_machine = 0x1600; // S/390, as a big endian file has it
  CHECK_THAT(refusal_of_file(folder.write("c", bytes_of(&header, sizeof(header)), 0755), ENOEXEC),
             Contains("s390x (64 bit, big endian)"));
}

TEST_CASE("a program whose dynamic loader is missing is told with its name", "[executable]") {
  const test::Folder folder;
  CHECK_THAT(refusal(folder.write("a", program_with_loader("/lib/ld-nowhere.so.1"), 0755), 126),
             Contains("needs the dynamic loader /lib/ld-nowhere.so.1, which is not there"));
  const std::string path = folder.write("b", program_with_loader("/bin/sh"), 0755);
  CHECK(find_program(path) == path);
}

TEST_CASE("ELF files that are no programs, or cut off, are told", "[executable]") {
  const test::Folder folder;
  const Elf64_Ehdr object = own_header(ET_REL);
  CHECK_THAT(refusal_of_file(folder.write("a", bytes_of(&object, sizeof(object)), 0755), ENOEXEC),
             Contains("is an object file"));
  const std::string whole = program_with_loader("/bin/sh");
  for (const std::size_t size :
       {std::size_t{4}, sizeof(object) - 1, sizeof(object) + 8, whole.size() - 1})
    CHECK_THAT(refusal(folder.write("b", whole.substr(0, size), 0755), 126), Contains("damaged"));
}

TEST_CASE("formats that somebody has registered with the kernel are left alone", "[executable]") {
  using muster::process::has_binfmt_handler;
  const test::Folder folder;
  const std::string head = "\x7f"
                           "ELF\x02\x01\x01";
  folder.write("status", "enabled\n");
  folder.write("register", "");
  CHECK_FALSE(has_binfmt_handler("x", head, folder.path()));
  folder.write("qemu",
               "enabled\ninterpreter /q\nflags: \noffset 0\nmagic 7f454c4600\nmask ffffffff00\n");
  CHECK(has_binfmt_handler("x", head, folder.path()));
  CHECK_FALSE(has_binfmt_handler("x", "#!", folder.path()));
  folder.write("qemu", "enabled\ninterpreter /q\nflags: \noffset 1\nmagic 454c47\n");
  CHECK_FALSE(has_binfmt_handler("x", head, folder.path()));
  folder.write("wine", "enabled\ninterpreter /w\nflags: \nextension .exe\n");
  CHECK(has_binfmt_handler("a.exe", "MZ", folder.path()));
  CHECK_FALSE(has_binfmt_handler("a", "MZ", folder.path()));
  folder.write("wine", "disabled\ninterpreter /w\nflags: \nextension .exe\n");
  CHECK_FALSE(has_binfmt_handler("a.exe", "MZ", folder.path()));
  CHECK_FALSE(has_binfmt_handler("a.exe", "MZ", folder / "none"));
}

TEST_CASE("arguments that are too long are told with the sizes and the limits", "[executable]") {
  const auto string_limit = 32 * ::sysconf(_SC_PAGESIZE);
  const auto one = exec_sizes({"p", "x"}, {"A=1", "LONG=" + std::string(200'000, 'x')});
  CHECK(one.longest == "the variable LONG");
  CHECK(one.longest_bytes == 200'006);
  CHECK(one.total_bytes == 200'006 + 2 + 2 + 4 + 4 * sizeof(char*));
  if (string_limit < 200'000)
    CHECK_THAT(explain_exec_error("./train", E2BIG, one),
               Contains("./train: the variable LONG has 200006 bytes") &&
                   Contains("at most " + std::to_string(string_limit)));
  const auto many = exec_sizes(Words(100'000, std::string(99, 'x')), {});
  struct rlimit stack {};
  REQUIRE(::getrlimit(RLIMIT_STACK, &stack) == 0);
  CHECK_THAT(explain_exec_error("./train", E2BIG, many),
             Contains("have 10800000 bytes") && Contains("ulimit -s"));
  if (stack.rlim_cur == 8 * 1024 * 1024)
    CHECK_THAT(explain_exec_error("./train", E2BIG, many), Contains("at most 2097152"));
  CHECK_THAT(explain_exec_error("./train", E2BIG), Contains("too many bytes"));
}

TEST_CASE("what exec still refuses is explained", "[executable]") {
  const test::Folder folder;
  const std::string good = folder.write("good", script, 0755);
  const std::string bad = folder.write("bad", "#!/no/sh\n", 0755);
  CHECK_THAT(explain_exec_error(good, ETXTBSY), Contains("is being written to"));
  CHECK_THAT(explain_exec_error(good, EACCES), Contains("security module"));
  CHECK_THAT(explain_exec_error(good, ENOENT), Contains("interpreter or dynamic loader"));
  CHECK_THAT(explain_exec_error(bad, ENOENT), Contains("interpreter /no/sh, which is not there"));
  CHECK_THAT(explain_exec_error(folder / "none", ENOENT), Contains("is not there"));
  CHECK_THAT(explain_exec_error(folder.path(), EACCES), Contains("is a directory"));
  CHECK_THAT(explain_exec_error(good, ENOEXEC), Contains("cannot execute"));
  CHECK_THAT(explain_exec_error(good, ENOMEM), Contains("Cannot allocate memory"));
  CHECK_THAT(explain_exec_error(good, 12345), Contains("error 12345"));
}
