// Objects behind the opaque pointers of the C interface: handles and backend descriptors.
//
// A client may pass anything where it should pass an object: NULL, a destroyed one, an integer, an
// object of another kind. Find answers without ever touching memory that is not ours. Objects live
// in 64-byte cells of slabs that are never given back; the addresses of slabs stand in a small
// lock-free table, and each cell starts with a word that says what lives there. Making and
// destroying takes a few nanoseconds and no lock: frontends create millions of descriptors.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <new>
#include <utility>

namespace kiln::api {

struct alignas(64) Cell {
  std::atomic<uint64_t> tag{0};  // T::kTag of the object that lives here, 0 when free
  alignas(16) std::byte storage[48];
};
static_assert(sizeof(Cell) == 64);

// Takes a free cell; null when the host has no memory left.
Cell* TakeCell();
void ReturnCell(Cell* cell);
// True if `pointer` is the address of a cell (free or not) of ours.
bool IsCell(const void* pointer);

// The object is constructed in the cell; the client sees the cell's address.
template <class T>
T* Make(void** public_pointer) {
  static_assert(sizeof(T) <= sizeof(Cell::storage) && alignof(T) <= 16);
  Cell* cell = TakeCell();
  if (cell == nullptr) return nullptr;
  T* object = new (cell->storage) T();
  cell->tag.store(T::kTag, std::memory_order_release);
  *public_pointer = cell;
  return object;
}

// Null where `pointer` is not a live T.
template <class T>
T* Find(const void* pointer) {
  if (!IsCell(pointer)) return nullptr;
  auto* cell = static_cast<Cell*>(const_cast<void*>(pointer));
  if (cell->tag.load(std::memory_order_acquire) != T::kTag) return nullptr;
  return std::launder(reinterpret_cast<T*>(cell->storage));
}

// False where `pointer` is not a live T; of two threads that destroy one object, one wins.
template <class T>
bool Destroy(void* pointer) {
  if (!IsCell(pointer)) return false;
  auto* cell = static_cast<Cell*>(pointer);
  uint64_t expected = T::kTag;
  if (!cell->tag.compare_exchange_strong(expected, 0, std::memory_order_acq_rel)) return false;
  std::launder(reinterpret_cast<T*>(cell->storage))->~T();
  ReturnCell(cell);
  return true;
}

}  // namespace kiln::api
