#include "ir/tile/interpret_memory.h"

#include <algorithm>

#include "ir/tile/names.h"

namespace kiln::tile {
namespace {

constexpr int kManyThreads = -1;  // the same value from several threads, or readers of several
// Several threads of team t of the last barrier of teams: kManyOfTeam - t.
constexpr int kManyOfTeam = -2;

}  // namespace

void Faults::Note(int thread, const std::string& what) {
  status = Status::Error(Code::kExecutionFailed, "{}: {} (thread {} of block {},{},{})",
                         HeadLine(*at->source), what, thread, block[0], block[1], block[2]);
}

void BlockMemory::FailBounds(const Memory& m, int64_t index, int lanes, int thread) {
  if (index >= 0 && index + lanes <= m.size)
    return faults_.Fail(thread, "{}[{}] is not aligned for {} lanes", m.name, index, lanes);
  faults_.Fail(thread, "{}[{}] is out of bounds: {} has {} elements", m.name,
               index < 0 ? index : index + lanes - 1, m.name, m.size);
}

bool BlockMemory::HasLanded(const Memory& m, int64_t index, int thread) {
  if (m.in_flight[index] == 0) return true;
  faults_.Fail(thread, "{}[{}] is touched before its copy was waited for", m.name, index);
  return false;
}

void BlockMemory::Forget(Memory& m, std::span<const int> threads) {
  if (std::ranges::find(m.in_flight, 1) != m.in_flight.end())
    return faults_.Fail(threads[0], "copies into it are still under way");
  if (m.space == Space::kShared || static_cast<int>(threads.size()) == threads_) {
    std::ranges::fill(m.defined, uint8_t{0});
    return;
  }
  for (int64_t i = 0; i < m.size; ++i)
    for (const int t : threads) m.defined[i * threads_ + t] = 0;
}

// ---- races

// True if somebody else touched it at `epoch`, and nothing orders that before what `thread` does.
bool BlockMemory::IsOpen(int epoch, int toucher, int thread) const {
  if (epoch < block_epoch_ || toucher == thread) return false;
  return epoch >= team_epoch_ || TeamOf(toucher) != TeamOf(thread);
}

int BlockMemory::TeamOf(int toucher) const {
  if (toucher <= kManyOfTeam) return kManyOfTeam - toucher;
  return toucher == kManyThreads || team_ == 0 ? -1 : toucher / team_;
}

// The toucher of an element after `thread` has joined `toucher`: a team where both are of one, else
// several threads.
int BlockMemory::Together(int toucher, int thread) const {
  const int team = TeamOf(thread);
  return team >= 0 && TeamOf(toucher) == team ? kManyOfTeam - team : kManyThreads;
}

// Notes a read for the detection of races; false where the element's copy has not landed.
bool BlockMemory::NoteRead(Memory& m, int64_t index, int thread) {
  if (!HasLanded(m, index, thread)) return false;
  Memory::Touch& t = m.touches[index];
  if (t.writer >= 0 && IsOpen(t.write_epoch, t.writer, thread))
    faults_.Fail(thread, "race: {}[{}] was stored by thread {} and there is no barrier between",
                 m.name, index, t.writer);
  t.reader = IsOpen(t.read_epoch, t.reader, thread) ? Together(t.reader, thread) : thread;
  t.read_epoch = epoch_;
  return true;
}

void BlockMemory::NoteWrite(Memory& m, int64_t index, int thread, bool same_value) {
  Memory::Touch& t = m.touches[index];
  const bool written = IsOpen(t.write_epoch, t.writer, thread);
  if (!same_value && written)
    faults_.Fail(thread,
                 "race: {}[{}] was stored by another thread and there is no barrier between",
                 m.name, index);
  if (!same_value && IsOpen(t.read_epoch, t.reader, thread))
    faults_.Fail(thread,
                 "race: {}[{}] was loaded by another thread and there is no barrier between",
                 m.name, index);
  t.writer = written ? Together(t.writer, thread) : thread;
  t.write_epoch = epoch_;
}

// ---- asynchronous copies

void BlockMemory::StartCopy(Memory& dst, int64_t index, int lanes, int thread) {
  for (int64_t i = index; i < index + lanes; ++i) dst.in_flight[i] = 1;
  async_[thread].open.push_back({&dst, index, lanes});
}

void BlockMemory::CommitCopies(int thread) {
  async_[thread].committed.push_back(std::move(async_[thread].open));
  async_[thread].open.clear();
}

void BlockMemory::WaitForCopies(int thread, int most_groups) {
  auto& groups = async_[thread].committed;
  while (groups.size() > static_cast<size_t>(most_groups)) {
    for (const Landing& l : groups.front()) Land(l, thread);
    groups.pop_front();
  }
}

void BlockMemory::Land(const Landing& l, int thread) {
  for (int64_t i = l.index; i < l.index + l.lanes; ++i) {
    l.memory->in_flight[i] = 0;
    NoteWrite(*l.memory, i, thread, false);
  }
}

}  // namespace kiln::tile
