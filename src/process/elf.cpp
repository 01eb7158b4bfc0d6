#include "elf.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>

#include <elf.h>
#include <fcntl.h>
#include <unistd.h>

#include <fmt/format.h>

#include "fd.hpp"

namespace muster::process {

namespace {

/// What tells for which machine a file is built: at the same place in both classes.
struct Kind {
  std::array<unsigned char, EI_NIDENT> ident{};
  std::uint16_t type = 0;
  std::uint16_t machine = 0;

  int bits() const { return ident[EI_CLASS] == ELFCLASS32 ? 32 : 64; }
  bool same_target(const Kind& other) const {
    return machine == other.machine && ident[EI_CLASS] == other.ident[EI_CLASS] &&
           ident[EI_DATA] == other.ident[EI_DATA];
  }
};

template <class T>
bool read_at(int file, std::uint64_t offset, T& value) {
  return ::pread(file, &value, sizeof(value), static_cast<off_t>(offset)) ==
         static_cast<ssize_t>(sizeof(value));
}

std::uint16_t swapped(std::uint16_t number) {
  return static_cast<std::uint16_t>(number << 8U | number >> 8U);
}

std::optional<Kind> kind_of(int file) {
  constexpr auto own_order = __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ ? ELFDATA2LSB : ELFDATA2MSB;
  Kind kind;
  if (!read_at(file, 0, kind))
    return std::nullopt;
  if (kind.ident[EI_DATA] != own_order) {
    kind.type = swapped(kind.type);
    kind.machine = swapped(kind.machine);
  }
  return kind;
}

std::string name_of(const Kind& kind) {
  constexpr std::array<std::pair<std::uint16_t, const char*>, 12> names{
      {{EM_X86_64, "x86_64"},
       {EM_386, "i386"},
       {EM_AARCH64, "aarch64"},
       {EM_ARM, "arm"},
       {EM_RISCV, "riscv"},
       {EM_PPC64, "ppc64"},
       {EM_PPC, "ppc"},
       {EM_S390, "s390x"},
       {EM_MIPS, "mips"},
       {EM_SPARCV9, "sparc64"},
       {EM_IA_64, "ia64"},
       {EM_LOONGARCH, "loongarch"}}};
  const auto* name = std::find_if(
      names.begin(), names.end(), [&](const auto& entry) { return entry.first == kind.machine; });
  return fmt::format("{} ({} bit, {} endian)",
                     name == names.end() ? fmt::format("machine {}", kind.machine) : name->second,
                     kind.bits(),
                     kind.ident[EI_DATA] == ELFDATA2MSB ? "big" : "little");
}

/// True for the 32-bit programs that a 64-bit kernel may be able to run, too.
bool is_little_sister(const Kind& kind, const Kind& own) {
  constexpr std::array<std::pair<int, int>, 4> sisters{
      {{EM_X86_64, EM_386}, {EM_AARCH64, EM_ARM}, {EM_PPC64, EM_PPC}, {EM_SPARCV9, EM_SPARC}}};
  return kind.bits() == 32 && own.bits() == 64 &&
         std::find(sisters.begin(),
                   sisters.end(),
                   std::pair<int, int>(own.machine, kind.machine)) != sisters.end();
}

/// The dynamic loader that the file names, "" if it needs none; nullopt if the file is cut off.
template <class Header, class Segment>
std::optional<std::string> loader(int file) {
  Header header;
  if (!read_at(file, 0, header))
    return std::nullopt;
  for (std::uint64_t i = 0; i < header.e_phnum; ++i) {
    Segment segment;
    if (!read_at(file, header.e_phoff + i * sizeof(segment), segment))
      return std::nullopt;
    if (segment.p_type != PT_INTERP)
      continue;
    std::string path(std::min<std::uint64_t>(segment.p_filesz, 4096), '\0');
    if (::pread(file, path.data(), path.size(), static_cast<off_t>(segment.p_offset)) !=
        static_cast<ssize_t>(path.size()))
      return std::nullopt;
    return path.substr(0, path.find('\0'));
  }
  return "";
}

} // namespace

std::optional<ExecProblem> elf_problem(int file) {
  const auto kind = kind_of(file);
  const Fd self(::open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
  const auto own = kind_of(self.get());
  const ExecProblem cut{ENOEXEC,
                        "is a damaged program: the file ends too early; build or copy it again"};
  if (!kind)
    return cut;
  if (own && !kind->same_target(*own) && !is_little_sister(*kind, *own))
    return ExecProblem{
        ENOEXEC,
        fmt::format("is built for {}, and this machine is {}; build it for this machine",
                    name_of(*kind),
                    name_of(*own))};
  if (kind->type != ET_EXEC && kind->type != ET_DYN)
    return ExecProblem{ENOEXEC,
                       kind->type == ET_REL
                           ? "is an object file, not a program; link it"
                           : "is an ELF file, but not a program; name the program itself"};
  const auto path = kind->bits() == 32 ? loader<Elf32_Ehdr, Elf32_Phdr>(file)
                                       : loader<Elf64_Ehdr, Elf64_Phdr>(file);
  if (!path)
    return cut;
  if (!path->empty() && ::access(path->c_str(), F_OK) != 0)
    return ExecProblem{
        ENOENT,
        fmt::format("needs the dynamic loader {}, which is not there; install it, or "
                    "build the program for this system",
                    *path)};
  return std::nullopt;
}

} // namespace muster::process
