#include "api/session/heuristic_list.h"

#include <algorithm>

#include "api/session/knobs.h"
#include "compiler/engines/knob_types.h"

namespace kiln::api {
namespace {

using compiler::Engine;
using compiler::Inputs;
using compiler::kNoteNondeterministic;
using compiler::kNoteTensorCore;

// The more exactly inputs are taken, the more an engine promises.
int Exactness(const Engine& engine) {
  switch (compiler::InputsOf(engine)) {
    case Inputs::kRounded:
      return 0;
    case Inputs::kWinograd:
      return 1;
    case Inputs::kExact:
      return 2;
  }
  return 0;
}

// True if `taken` avoids what the note says wherever `engine` avoids it.
bool AvoidsLike(const Engine& taken, const Engine& engine, int note) {
  return !taken.notes.HasNumerical(note) || engine.notes.HasNumerical(note);
}

}  // namespace

HeuristicList::HeuristicList(RankMode mode, bool may_want_no_tensor_cores)
    : mode_(mode), may_want_no_tensor_cores_(may_want_no_tensor_cores) {}

bool HeuristicList::PromisesMore(const Engine& engine) const {
  return std::ranges::none_of(taken_, [&](int index) {
    const Engine& taken = EngineAt(index);
    return Exactness(taken) >= Exactness(engine) &&
           AvoidsLike(taken, engine, kNoteNondeterministic) &&
           (!may_want_no_tensor_cores_ || AvoidsLike(taken, engine, kNoteTensorCore));
  });
}

bool HeuristicList::Wants(const compiler::Candidate& candidate) {
  const Engine& engine = EngineAt(candidate.engine);
  if (PromisesMore(engine)) return true;
  if (mode_ == RankMode::kInstant || mode_ == RankMode::kFallback) return false;
  const bool is_listed = std::ranges::find(taken_, candidate.engine) != taken_.end();
  const double fastest =
      fastest_.try_emplace(compiler::InputsOf(engine), candidate.seconds).first->second;
  return taken_.size() < kWidely || (!is_listed && candidate.seconds <= kSlow * fastest);
}

void HeuristicList::Add(const compiler::Candidate& candidate) {
  taken_.push_back(candidate.engine);
}

}  // namespace kiln::api
