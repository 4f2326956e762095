#include "api/offers.h"

#include <algorithm>

#include "compiler/engines/knob_types.h"

namespace kiln::api {
namespace {

using compiler::Engine;
using compiler::Inputs;

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

bool AddsInOrder(const Engine& engine) {
  return std::ranges::find(engine.notes.numerical, compiler::kNoteNondeterministic) ==
         engine.notes.numerical.end();
}

const Engine& EngineAt(int index) { return compiler::Engines()[static_cast<size_t>(index)]; }

}  // namespace

Offers::Offers(RankMode mode) : mode_(mode) {}

bool Offers::PromisesMore(const Engine& engine) const {
  return std::ranges::none_of(taken_, [&](int index) {
    const Engine& taken = EngineAt(index);
    return Exactness(taken) >= Exactness(engine) && AddsInOrder(taken) >= AddsInOrder(engine);
  });
}

bool Offers::Wants(const compiler::Candidate& candidate) {
  const Engine& engine = EngineAt(candidate.engine);
  if (mode_ == RankMode::kInstant || mode_ == RankMode::kFallback) return PromisesMore(engine);
  const bool is_listed = std::ranges::find(taken_, candidate.engine) != taken_.end();
  const double fastest =
      fastest_.try_emplace(compiler::InputsOf(engine), candidate.seconds).first->second;
  return taken_.size() < kWidely || (!is_listed && candidate.seconds <= kSlow * fastest);
}

void Offers::Took(const compiler::Candidate& candidate) { taken_.push_back(candidate.engine); }

}  // namespace kiln::api
