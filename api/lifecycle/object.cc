#include "api/lifecycle/object.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <mutex>
#include <vector>

#include "api/lifecycle/fork_gate.h"

// Each thread keeps a short list of free cells; surplus and shortage go through one shared list, a
// batch at a time. A slab is 1 MiB, aligned to its size, so that the slab of any pointer is found
// by masking.

namespace kiln::api {
namespace {

constexpr uintptr_t kSlabBytes = uintptr_t{1} << 20;
constexpr size_t kCellsPerSlab = kSlabBytes / sizeof(Cell);
constexpr size_t kBatch = 64;
constexpr size_t kTableSize =
    1 << 14;  // 16 GiB of objects; open addressing, entries are never removed

std::array<std::atomic<uintptr_t>, kTableSize> slab_table;

size_t SlotOf(uintptr_t slab) { return (slab / kSlabBytes * 0x9E3779B97F4A7C15ull) >> 50; }
static_assert(kTableSize == size_t{1} << (64 - 50));

bool KnowsSlab(uintptr_t slab) {
  for (size_t i = SlotOf(slab), n = 0; n < kTableSize; ++n, i = (i + 1) % kTableSize) {
    uintptr_t entry = slab_table[i].load(std::memory_order_acquire);
    if (entry == 0) return false;  // before the comparison: small integers mask to slab 0
    if (entry == slab) return true;
  }
  return false;
}

// Called with the shared list's lock held.
bool RegisterSlab(uintptr_t slab) {
  for (size_t i = SlotOf(slab), n = 0; n < kTableSize; ++n, i = (i + 1) % kTableSize) {
    if (slab_table[i].load(std::memory_order_relaxed) != 0) continue;
    slab_table[i].store(slab, std::memory_order_release);
    return true;
  }
  return false;
}

// Leaked on purpose: descriptors may be destroyed from static destructors of the client.
struct SharedList {
  std::mutex mutex;
  std::vector<Cell*> cells;

  static SharedList& Get() {
    static SharedList* list = new SharedList;
    return *list;
  }
  bool AddSlab() {
    void* memory = std::aligned_alloc(kSlabBytes, kSlabBytes);
    if (memory == nullptr) return false;
    if (!RegisterSlab(reinterpret_cast<uintptr_t>(memory))) {
      std::free(memory);
      return false;
    }
    auto* first = static_cast<Cell*>(memory);
    cells.reserve(cells.size() + kCellsPerSlab);
    for (size_t i = kCellsPerSlab; i-- > 0;) cells.push_back(new (first + i) Cell);
    return true;
  }
  size_t Take(Cell** out, size_t count) {
    std::lock_guard lock(mutex);
    if (cells.empty() && !AddSlab()) return 0;
    count = std::min(count, cells.size());
    for (size_t i = 0; i < count; ++i, cells.pop_back()) out[i] = cells.back();
    return count;
  }
  void Return(Cell* const* in, size_t count) {
    std::lock_guard lock(mutex);
    cells.insert(cells.end(), in, in + count);
  }
};

}  // namespace

namespace internal {

// NOTE: small, with the cells elsewhere: a library with thread-local objects at known offsets takes
// all of them from a few hundred bytes that a process has for libraries that it opens late.
struct ThreadList {
  std::vector<Cell*> cells = std::vector<Cell*>(2 * kBatch);
  size_t count = 0;

  ~ThreadList();
};

// The thread's list, at an offset that is known when the library is loaded: reaching thread_list
// itself costs a call, as it may be of another size in each process and has a destructor to be
// registered.
// NOTE: not local to this file, where gold would give it the first bytes of the library's
// thread-local memory, which belong to another object: tests/api/entry/exports_test.sh looks for
// that.
__attribute__((tls_model("initial-exec"))) constinit thread_local ThreadList* this_threads_list =
    nullptr;

}  // namespace internal

namespace {

using internal::this_threads_list;
using internal::ThreadList;

thread_local ThreadList thread_list;
constinit thread_local bool is_gone = false;  // not of the list, whose members end with it

// Null where the client makes objects while its thread is being torn down.
ThreadList* ListOfThread() {
  if (this_threads_list == nullptr && !is_gone) [[unlikely]]
    this_threads_list = &thread_list;
  return this_threads_list;
}

}  // namespace

internal::ThreadList::~ThreadList() {
  const Inside inside;
  SharedList::Get().Return(cells.data(), count);
  this_threads_list = nullptr;
  is_gone = true;
}

Cell* TakeCell() {
  ThreadList* const list = ListOfThread();
  if (list == nullptr) {
    Cell* cell = nullptr;
    return SharedList::Get().Take(&cell, 1) == 1 ? cell : nullptr;
  }
  if (list->count == 0) {
    list->count = SharedList::Get().Take(list->cells.data(), kBatch);
    if (list->count == 0) return nullptr;
  }
  return list->cells[--list->count];
}

void ReturnCell(Cell* cell) {
  ThreadList* const list = ListOfThread();
  if (list == nullptr) return SharedList::Get().Return(&cell, 1);
  if (list->count == list->cells.size()) {
    list->count -= kBatch;
    SharedList::Get().Return(list->cells.data() + list->count, kBatch);
  }
  list->cells[list->count++] = cell;
}

bool IsCell(const void* pointer) {
  auto address = reinterpret_cast<uintptr_t>(pointer);
  if (address == 0 || address % sizeof(Cell) != 0) return false;
  return KnowsSlab(address & ~(kSlabBytes - 1));
}

}  // namespace kiln::api
