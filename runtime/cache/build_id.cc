// Reads the build id from the notes of the loaded object that contains this function.
#include "runtime/cache/build_id.h"

#include <elf.h>
#include <fmt/format.h>
#include <link.h>

#include <cstring>

namespace kiln::runtime {
namespace {

struct Search {
  uintptr_t inside;
  std::string id;
};

size_t Align4(size_t n) { return (n + 3) & ~size_t{3}; }

void ReadNotes(const char* note, size_t size, std::string& id) {
  while (size >= sizeof(ElfW(Nhdr))) {
    ElfW(Nhdr) header;
    std::memcpy(&header, note, sizeof header);
    size_t total = sizeof header + Align4(header.n_namesz) + Align4(header.n_descsz);
    if (total > size) return;
    const char* name = note + sizeof header;
    if (header.n_type == NT_GNU_BUILD_ID && header.n_namesz == 4 &&
        std::memcmp(name, "GNU", 4) == 0) {
      const char* bytes = name + Align4(header.n_namesz);
      for (size_t i = 0; i < header.n_descsz; ++i)
        id += fmt::format("{:02x}", static_cast<uint8_t>(bytes[i]));
      return;
    }
    note += total;
    size -= total;
  }
}

int Visit(dl_phdr_info* object, size_t, void* data) {
  auto& search = *static_cast<Search*>(data);
  bool contains = false;
  for (int i = 0; i < object->dlpi_phnum; ++i) {
    const auto& segment = object->dlpi_phdr[i];
    uintptr_t begin = object->dlpi_addr + segment.p_vaddr;
    contains |= segment.p_type == PT_LOAD && search.inside >= begin &&
                search.inside < begin + segment.p_memsz;
  }
  if (!contains) return 0;
  for (int i = 0; i < object->dlpi_phnum && search.id.empty(); ++i) {
    const auto& segment = object->dlpi_phdr[i];
    if (segment.p_type != PT_NOTE) continue;
    ReadNotes(reinterpret_cast<const char*>(object->dlpi_addr + segment.p_vaddr), segment.p_memsz,
              search.id);
  }
  return 1;
}

}  // namespace

std::string BuildId() {
  Search search{.inside = reinterpret_cast<uintptr_t>(&BuildId), .id = {}};
  dl_iterate_phdr(&Visit, &search);
  return search.id.empty() ? "none" : search.id;
}

}  // namespace kiln::runtime
