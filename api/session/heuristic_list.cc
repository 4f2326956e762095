#include "api/session/heuristic_list.h"

#include <algorithm>

#include "compiler/engines/knob_types.h"
#include "compiler/engines/registry.h"

namespace kiln::api {
namespace {

using compiler::Engine;
using compiler::Inputs;
using compiler::kNoteNondeterministic;
using compiler::kNoteTensorCore;

// What is exact promises most.
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

// Whether `taken` avoids what the note says where `engine` does.
bool AvoidsLike(const Engine& taken, const Engine& engine, int note) {
  return !taken.notes.HasNumerical(note) || engine.notes.HasNumerical(note);
}

const Engine& EngineAt(int index) { return compiler::Engines()[static_cast<size_t>(index)]; }

}  // namespace

Offers::Offers(RankMode mode, bool may_want_no_tensor_cores)
    : mode_(mode), may_want_no_tensor_cores_(may_want_no_tensor_cores) {}

bool Offers::PromisesMore(const Engine& engine) const {
  return std::ranges::none_of(taken_, [&](int index) {
    const Engine& taken = EngineAt(index);
    return Exactness(taken) >= Exactness(engine) &&
           AvoidsLike(taken, engine, kNoteNondeterministic) &&
           (!may_want_no_tensor_cores_ || AvoidsLike(taken, engine, kNoteTensorCore));
  });
}

bool Offers::Wants(const compiler::Candidate& candidate) {
  const Engine& engine = EngineAt(candidate.engine);
  if (PromisesMore(engine)) return true;
  if (mode_ == RankMode::kInstant || mode_ == RankMode::kFallback) return false;
  const bool is_listed = std::ranges::find(taken_, candidate.engine) != taken_.end();
  const double fastest =
      fastest_.try_emplace(compiler::InputsOf(engine), candidate.seconds).first->second;
  return taken_.size() < kWidely || (!is_listed && candidate.seconds <= kSlow * fastest);
}

void Offers::Took(const compiler::Candidate& candidate) { taken_.push_back(candidate.engine); }

}  // namespace kiln::api
