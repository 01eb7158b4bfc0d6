#include "symbolize.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <map>
#include <tuple>
#include <vector>

#include <cxxabi.h>
#include <dwarf.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <elfutils/libdw.h>
#include <elfutils/libdwfl.h>
#include <fmt/format.h>

namespace muster::process {

namespace {

constexpr std::chrono::seconds time_limit{2};
constexpr std::size_t longest_name = 300;

struct Free {
  void operator()(void* memory) const noexcept { std::free(memory); }
};
template <class T>
using Allocated = std::unique_ptr<T, Free>;

std::string link_target(const char* path) {
  char target[4096];
  const ssize_t size = ::readlink(path, target, sizeof target);
  return {target, static_cast<std::size_t>(std::max<ssize_t>(size, 0))};
}

/// This program's own file may have been replaced since it was started, as by a new build; the one
/// that runs is still there.
const char* file_of(const char* module) {
  constexpr const char* own = "/proc/self/exe";
  struct stat info {};
  if (::stat(module, &info) == 0)
    return S_ISREG(info.st_mode) ? module : nullptr;
  return link_target(own) == module ? own : nullptr;
}

int find_elf(
    Dwfl_Module* module, void** data, const char* name, Dwarf_Addr base, char** path, Elf** elf) {
  const char* file = name[0] == '/' ? file_of(name) : nullptr;
  if (file == nullptr) // the vdso, or a deleted file of a process that lives
    return ::dwfl_linux_proc_find_elf(module, data, name, base, path, elf);
  const int fd = ::open(file, O_RDONLY | O_CLOEXEC);
  if (fd >= 0)
    *path = ::strdup(file);
  return fd;
}

const Dwfl_Callbacks callbacks = {
    .find_elf = find_elf,
    .find_debuginfo = ::dwfl_build_id_find_debuginfo, // of the callbacks, the one without a network
    .section_address = nullptr,
    .debuginfo_path = nullptr,
};

/// As seen from the working directory.
std::string shown(std::string_view path, const char* here) {
  const Allocated<char> directory(::get_current_dir_name());
  const std::string prefix = directory ? std::string(directory.get()) + "/" : std::string();
  if (prefix.size() < 2 || !path.starts_with(prefix))
    return std::string(path);
  return here + std::string(path.substr(prefix.size()));
}

std::string demangled(const char* name) {
  const Allocated<char> plain(abi::__cxa_demangle(name, nullptr, nullptr, nullptr));
  std::string text = plain ? plain.get() : name;
  if (text.size() > longest_name)
    text.replace(longest_name, std::string::npos, "...");
  return text;
}

std::string source(const char* file, int line) {
  return file ? fmt::format(" at {}:{}", shown(file, ""), line) : std::string();
}

/// The part of a module's debug information that is about one address.
class Unit {
public:
  Unit(Dwfl_Module* module, Dwarf_Addr address) : module_(module) {
    die_ = ::dwfl_module_addrdie(module, address, &bias_);
    if (die_ == nullptr) // clang writes no index of addresses
      while ((die_ = ::dwfl_module_nextcu(module, die_, &bias_)) != nullptr)
        if (::dwarf_haspc(die_, address - bias_) == 1)
          break;
    address_ = address - bias_;
  }

  explicit operator bool() const noexcept { return die_ != nullptr; }

  std::string source_line() const {
    Dwarf_Line* line = ::dwarf_getsrc_die(die_, address_);
    int number = 0;
    return line && ::dwarf_lineno(line, &number) == 0
               ? source(::dwarf_linesrc(line, nullptr, nullptr), number)
               : std::string();
  }

  /// The functions that were inlined at the address, the innermost first.
  std::vector<Dwarf_Die> inlined() const {
    std::vector<Dwarf_Die> found;
    Dwarf_Die* innermost = nullptr; // and, if it was inlined, the scopes of its definition
    if (::dwarf_getscopes(die_, address_, &innermost) <= 0)
      return found;
    const Allocated<Dwarf_Die> owner(innermost);
    Dwarf_Die* scopes = nullptr;
    const int count = ::dwarf_getscopes_die(innermost, &scopes);
    const Allocated<Dwarf_Die> owner_too(scopes);
    for (int i = 0; i < count && ::dwarf_tag(&scopes[i]) != DW_TAG_subprogram; ++i)
      if (::dwarf_tag(&scopes[i]) == DW_TAG_inlined_subroutine)
        found.push_back(scopes[i]);
    return found;
  }

  /// Where an inlined function was called.
  std::string call_line(Dwarf_Die& call) const {
    const auto number = [&](unsigned attribute) {
      Dwarf_Attribute value;
      Dwarf_Word word = 0;
      ::dwarf_formudata(::dwarf_attr(&call, attribute, &value), &word);
      return word;
    };
    Dwarf_Files* files = nullptr;
    std::size_t count = 0;
    if (::dwarf_getsrcfiles(die_, &files, &count) != 0)
      return "";
    return source(::dwarf_filesrc(files, number(DW_AT_call_file), nullptr, nullptr),
                  static_cast<int>(number(DW_AT_call_line)));
  }

private:
  Dwfl_Module* module_;
  Dwarf_Die* die_ = nullptr;
  Dwarf_Addr bias_ = 0;
  Dwarf_Addr address_ = 0;
};

std::string name_of(Dwarf_Die& function) {
  Dwarf_Attribute value;
  const char* name =
      ::dwarf_formstring(::dwarf_attr_integrate(&function, DW_AT_linkage_name, &value));
  name = name ? name : ::dwarf_diename(&function);
  return name ? demangled(name) : "?";
}

/// The functions in a module's symbol table, by address. libdwfl itself looks at all symbols of a
/// module for each address, which are half a million in libtorch.
class Functions {
public:
  explicit Functions(Dwfl_Module* module) {
    const int count = ::dwfl_module_getsymtab(module);
    for (int i = 0; i < count; ++i)
      add(module, i);
    std::sort(all_.begin(), all_.end(), [](const Function& a, const Function& b) {
      return std::tie(a.start, a.global) < std::tie(b.start, b.global);
    });
  }

  /// Empty if no function is there.
  std::string at(Dwarf_Addr address) const {
    const auto after = std::upper_bound(
        all_.begin(), all_.end(), address, [](Dwarf_Addr value, const Function& function) {
          return value < function.start;
        });
    if (after == all_.begin())
      return "";
    const Function& before = *std::prev(after);
    const bool inside = before.size == 0 || address - before.start < before.size;
    return inside ? demangled(before.name) : "";
  }

private:
  struct Function {
    Dwarf_Addr start;
    Dwarf_Addr size; // 0: written in assembler, and nobody said
    bool global;
    const char* name;
  };

  void add(Dwfl_Module* module, int index) {
    GElf_Sym symbol;
    GElf_Addr start = 0;
    GElf_Word section = SHN_UNDEF;
    const char* name =
        ::dwfl_module_getsym_info(module, index, &symbol, &start, &section, nullptr, nullptr);
    const auto type = GELF_ST_TYPE(symbol.st_info);
    if (name && section != SHN_UNDEF && section != SHN_ABS &&
        (type == STT_FUNC || type == STT_GNU_IFUNC))
      all_.push_back({start, symbol.st_size, GELF_ST_BIND(symbol.st_info) == STB_GLOBAL, name});
  }

  std::vector<Function> all_;
};

/// How the standard library comes from a call of a thread or a callable to the user's function.
bool is_plumbing(std::string_view function) {
  static constexpr const char* names[] = {
      "std::__invoke", "std::thread::_", "std::_Function_handler<"};
  return std::any_of(std::begin(names), std::end(names), [&](const char* name) {
    return function.find(name) != std::string_view::npos;
  });
}

/// "./train+0x1234", an offset that addr2line takes.
std::string place_in(Dwfl_Module* module, Dwarf_Addr address, bool open) {
  Dwarf_Addr start = 0;
  const char* name =
      ::dwfl_module_info(module, nullptr, &start, nullptr, nullptr, nullptr, nullptr, nullptr);
  GElf_Addr bias = start;
  if (open && ::dwfl_module_getelf(module, &bias) == nullptr)
    bias = start;
  return fmt::format("{}+{:#x}", shown(name ? name : "?", "./"), address - bias);
}

/// The lines of one backtrace.
class Lines {
public:
  explicit Lines(Dwfl* session) : session_(session) {}

  void add(const Frame& frame, bool in_time) {
    if (frame.address == last_ && number_ > 0) {
      ++repeated_;
      return;
    }
    end_repetition();
    last_ = frame.address;
    const Dwarf_Addr at = frame.exact ? frame.address : frame.address - 1;
    Dwfl_Module* module = session_ ? ::dwfl_addrmodule(session_, at) : nullptr;
    if (module == nullptr)
      return line(at, "in no module");
    if (!in_time)
      return line(at, "in " + place_in(module, at, false));
    add_symbolized(module, at);
  }

  std::string take() {
    end_repetition();
    return std::move(text_);
  }

private:
  void line(Dwarf_Addr at, std::string_view what) {
    text_ += fmt::format("#{} {:#x} {}\n", number_++, at, what);
  }

  void add_symbolized(Dwfl_Module* module, Dwarf_Addr at) {
    const Unit unit(module, at);
    std::string where = unit ? unit.source_line() : std::string();
    if (unit)
      for (Dwarf_Die& call : unit.inlined()) {
        line(at, name_of(call) + where + " (inlined)");
        where = unit.call_line(call);
      }
    const std::string function = functions_.try_emplace(module, module).first->second.at(at);
    if (is_plumbing(function)) {
      ++number_;
      return;
    }
    const std::string place = place_in(module, at, true);
    line(at, function.empty() ? "in " + place + where : function + where + " (in " + place + ")");
  }

  void end_repetition() {
    if (repeated_ > 0)
      text_ += fmt::format("   and the same {} more times\n", repeated_);
    number_ += repeated_;
    repeated_ = 0;
  }

  Dwfl* session_;
  std::string text_;
  int number_ = 0;
  int repeated_ = 0;
  std::uint64_t last_ = 0;
  std::map<Dwfl_Module*, Functions> functions_;
};

} // namespace

void Symbolizer::End::operator()(Dwfl* session) const noexcept { ::dwfl_end(session); }

Symbolizer::Symbolizer(Clock::time_point deadline)
    : deadline_(deadline), session_(::dwfl_begin(&callbacks)) {}

void Symbolizer::use_maps(std::string_view maps) {
  if (!session_ || maps.empty())
    return;
  std::FILE* file = ::fmemopen(const_cast<char*>(maps.data()), maps.size(), "r");
  if (file == nullptr)
    return;
  ::dwfl_report_begin(session());
  ::dwfl_linux_proc_maps_report(session(), file);
  ::dwfl_report_end(session(), nullptr, nullptr);
  std::fclose(file);
}

void Symbolizer::use_process(pid_t pid) {
  if (!session_)
    return;
  ::dwfl_report_begin(session());
  ::dwfl_linux_proc_report(session(), pid);
  ::dwfl_report_end(session(), nullptr, nullptr);
}

std::string Symbolizer::lines(std::span<const Frame> frames) {
  Lines lines(session());
  for (const Frame& frame : frames)
    lines.add(frame, Clock::now() < deadline_);
  return lines.take();
}

std::string symbolize(const CrashRecord& record, std::string_view maps) {
  Symbolizer symbolizer(Symbolizer::Clock::now() + time_limit);
  symbolizer.use_maps(maps);
  const std::size_t count = std::min<std::size_t>(record.frame_count, CrashRecord::most_frames);
  std::vector<Frame> frames;
  for (std::size_t i = 0; i < count; ++i)
    frames.push_back({record.frames[i], i == 0});
  return symbolizer.lines(frames);
}

} // namespace muster::process
