#include "tests/support/emulated_gpu/memory.h"

#include <fmt/format.h>

#include <iterator>

namespace kiln::emulated {

void Memory::Add(const void* memory, size_t bytes) {
  const std::lock_guard lock(mutex_);
  const auto begin = reinterpret_cast<uint64_t>(memory);
  ranges_[begin] = begin + bytes;
}

bool Memory::Remove(const void* memory) {
  const std::lock_guard lock(mutex_);
  return ranges_.erase(reinterpret_cast<uint64_t>(memory)) == 1;
}

Memory::Range Memory::Find(uint64_t address, uint64_t bytes) const {
  const std::lock_guard lock(mutex_);
  auto next = ranges_.upper_bound(address);
  if (next == ranges_.begin()) return {};
  const Range range{std::prev(next)->first, std::prev(next)->second};
  return range.Has(address, bytes) ? range : Range{};
}

std::string Memory::Describe(uint64_t address) const {
  const std::lock_guard lock(mutex_);
  const auto next = ranges_.upper_bound(address);
  std::string text = fmt::format("{:#x} is in no allocation", address);
  if (next != ranges_.begin()) {
    const auto [begin, end] = *std::prev(next);
    text += address < end ? fmt::format("; it is {} bytes before the end of one of {}",
                                        end - address, end - begin)
                          : fmt::format("; it is {} bytes behind the end of one of {}",
                                        address - end, end - begin);
  }
  if (next != ranges_.end())
    text += fmt::format("; it is {} bytes before one of {}", next->first - address,
                        next->second - next->first);
  return text;
}

}  // namespace kiln::emulated
