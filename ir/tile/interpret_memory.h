// The memory of a block that the interpreter runs: every access is checked for bounds and
// alignment, for what is undefined, for races on shared memory, and for copies that have not been
// waited for. The first fault is kept, with the statement that made it.
#pragma once

#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "ir/tile/interpret_steps.h"

namespace kiln::tile {

// The first failure of a run, which ends after the statement that made it.
struct Faults {
  Status status;
  const Step* at = nullptr;  // the statement that runs
  int64_t block[3] = {};     // which block runs it

  template <class... A>
  void Fail(int thread, fmt::format_string<A...> format, A&&... args) {
    if (status.ok()) Note(thread, fmt::format(format, std::forward<A>(args)...));
  }

 private:
  void Note(int thread, const std::string& what);
};

class BlockMemory {
 public:
  // `team`: threads of a team that has barriers of its own, or 0.
  BlockMemory(int threads, int team, Faults& faults)
      : threads_(threads), team_(team), faults_(faults), async_(threads) {}

  bool InBounds(const Memory& m, int64_t index, int lanes, int thread) {
    if (index >= 0 && index + lanes <= m.size && (lanes == 1 || index % lanes == 0)) return true;
    FailBounds(m, index, lanes, thread);
    return false;
  }

  Cell Read(Memory& m, int64_t index, int thread) {
    if (m.global != nullptr) {
      const double v = (*m.global)[index];
      return IsFloat(m.type) ? Cell{.f = v} : Cell{.i = static_cast<int64_t>(v)};
    }
    const size_t at = Offset(m, index, thread);
    if (m.defined[at] == 0) {
      faults_.Fail(thread, "{}[{}] is undefined", m.name, index);
      return {.i = 0};
    }
    if (m.space == Space::kShared && !NoteRead(m, index, thread)) return {.i = 0};
    return m.cells[at];
  }

  void Write(Memory& m, int64_t index, int thread, Cell value) {
    if (m.global != nullptr) {
      (*m.global)[index] = IsFloat(m.type) ? value.f : static_cast<double>(value.i);
      return;
    }
    const size_t at = Offset(m, index, thread);
    if (m.space == Space::kShared) {
      if (!HasLanded(m, index, thread)) return;
      NoteWrite(m, index, thread, m.defined[at] != 0 && m.cells[at].i == value.i);
    }
    m.defined[at] = 1;
    m.cells[at] = value;
  }

  // Makes the elements of an allocation undefined from here on.
  void Forget(Memory& m, std::span<const int> threads);
  // Orders accesses before a barrier of the block, or of teams, with those after it.
  void PassBarrier(bool of_teams) { (of_teams ? team_epoch_ : block_epoch_) = ++epoch_; }

  // Starts an asynchronous copy. Its value is there for others from the wait on, as if the thread
  // had stored it then; until the wait nobody may touch the destination.
  void StartCopy(Memory& dst, int64_t index, int lanes, int thread);
  void CommitCopies(int thread);
  void WaitForCopies(int thread, int most_groups);

 private:
  struct Landing {
    Memory* memory;
    int64_t index;
    int lanes;
  };
  struct Async {  // of a thread
    std::vector<Landing> open;
    std::deque<std::vector<Landing>> committed;
  };

  size_t Offset(const Memory& m, int64_t index, int thread) const {
    return m.space == Space::kReg ? index * threads_ + thread : index;
  }
  void FailBounds(const Memory& m, int64_t index, int lanes, int thread);
  bool HasLanded(const Memory& m, int64_t index, int thread);
  bool IsOpen(int epoch, int toucher, int thread) const;
  int TeamOf(int toucher) const;
  int Together(int toucher, int thread) const;
  bool NoteRead(Memory& m, int64_t index, int thread);
  void NoteWrite(Memory& m, int64_t index, int thread, bool same_value);
  void Land(const Landing& l, int thread);

  const int threads_, team_;
  Faults& faults_;
  std::vector<Async> async_;
  int epoch_ = 0, block_epoch_ = 0, team_epoch_ = 0;  // barriers so far; the last ones of each kind
};

}  // namespace kiln::tile
