// Device memory of the emulated GPU: the host's, with a list of what is allocated.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>

namespace kiln::emulated {

class Memory {
 public:
  struct Range {
    uint64_t begin = 0, end = 0;
    bool Has(uint64_t address, uint64_t bytes) const {
      return address >= begin && address + bytes <= end;
    }
  };

  void Add(const void* memory, size_t bytes);
  bool Remove(const void* memory);  // false: it was not there
  // The allocation with all of these bytes; an empty one where there is none.
  Range Find(uint64_t address, uint64_t bytes) const;
  // "12 bytes behind an allocation of 64 at 0x…", of an address that Find does not find.
  std::string Describe(uint64_t address) const;

 private:
  mutable std::mutex mutex_;
  std::map<uint64_t, uint64_t> ranges_;  // end by begin
};

}  // namespace kiln::emulated
