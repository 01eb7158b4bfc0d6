#include <muster/launch/entry.hpp>
#include <muster/launch/error.hpp>

#include <cstring>
#include <functional>

#include <elf.h>
#include <link.h>

#include <fmt/format.h>

#include "modules.hpp"

namespace muster {

namespace {

/// The GNU build id among a module's notes, or an empty string.
std::string build_id_of(const dl_phdr_info& info) {
  for (int i = 0; i < info.dlpi_phnum; ++i) {
    const auto& header = info.dlpi_phdr[i];
    if (header.p_type != PT_NOTE)
      continue;
    const char* note = reinterpret_cast<const char*>(info.dlpi_addr + header.p_vaddr);
    const char* end = note + header.p_memsz;
    while (note + sizeof(ElfW(Nhdr)) <= end) {
      ElfW(Nhdr) head;
      std::memcpy(&head, note, sizeof head);
      const char* name = note + sizeof head;
      const char* value = name + ((head.n_namesz + 3U) & ~3U);
      if (head.n_type == NT_GNU_BUILD_ID && head.n_namesz == 4 && std::memcmp(name, "GNU", 4) == 0)
        return {value, head.n_descsz};
      note = value + ((head.n_descsz + 3U) & ~3U);
    }
  }
  return {};
}

bool contains(const dl_phdr_info& info, std::uintptr_t address) {
  for (int i = 0; i < info.dlpi_phnum; ++i) {
    const auto& header = info.dlpi_phdr[i];
    const auto start = info.dlpi_addr + header.p_vaddr;
    if (header.p_type == PT_LOAD && address >= start && address < start + header.p_memsz)
      return true;
  }
  return false;
}

using Visit = std::function<bool(const dl_phdr_info&)>;

/// Visits loaded modules until `visit` returns true.
void visit_modules(const Visit& visit) {
  ::dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* data) -> int {
        return (*static_cast<const Visit*>(data))(*info) ? 1 : 0;
      },
      const_cast<Visit*>(&visit));
}

std::string path_of(const dl_phdr_info& info) {
  return info.dlpi_name && *info.dlpi_name ? info.dlpi_name : "the program itself";
}

} // namespace

std::vector<std::string> loaded_build_ids() {
  std::vector<std::string> ids;
  visit_modules([&](const dl_phdr_info& info) {
    ids.push_back(build_id_of(info));
    return false;
  });
  return ids;
}

Symbol symbol_of(const void* pointer) {
  const auto address = reinterpret_cast<std::uintptr_t>(pointer);
  Symbol symbol;
  visit_modules([&](const dl_phdr_info& info) {
    if (!contains(info, address))
      return false;
    symbol = {build_id_of(info), address - info.dlpi_addr, path_of(info)};
    return true;
  });
  if (symbol.module.empty())
    throw UsageError("the function to launch lies in no loaded program or library");
  if (symbol.build_id.empty())
    throw UsageError(
        fmt::format("the function to launch lies in {}, which has no build id; link it "
                    "with -Wl,--build-id",
                    symbol.module));
  return symbol;
}

void* address_of(const Symbol& symbol) {
  std::uintptr_t address = 0;
  visit_modules([&](const dl_phdr_info& info) {
    if (build_id_of(info) != symbol.build_id)
      return false;
    address = info.dlpi_addr + symbol.offset;
    return contains(info, address);
  });
  if (address == 0)
    throw UsageError(
        fmt::format("the function to run lies in {}, which this rank has not loaded in "
                    "that build",
                    symbol.module));
  return reinterpret_cast<void*>(address);
}

} // namespace muster
