#include "compiler/engines/attention/grad_functions.h"

#include <algorithm>
#include <set>

#include "compiler/engines/attention/functions.h"
#include "compiler/engines/attention/problem.h"
#include "compiler/kernel/attention_members.h"
#include "compiler/kernel/skeleton_call.h"
#include "compiler/patterns/graph_view.h"
#include "ir/base/check.h"
#include "ir/tile/visit.h"

namespace kiln::compiler {

using graph::TensorId;
using tile::Block;
using tile::Call;
using tile::Expr;

namespace {

// Neighbours that share a call of Philox (ir/scalar.h).
constexpr int kOfPhilox = 8;

bool Uses(const Block& block, const Expr& variable) {
  bool uses = false;
  tile::WalkExprs(block, [&](const Expr& e) { uses = uses || tile::Equal(e, variable); });
  return uses;
}

}  // namespace

struct AttentionGradFunctions::Element {
  Call::Function f;
  std::vector<Expr> numbers;
  Expr batch, row, column;
  std::string result;
  Index at = {};
};

AttentionGradFunctions::Element AttentionGradFunctions::Begin(
    const char* name, std::initializer_list<const char*> numbers, int results) const {
  Element e{.f = {.name = name, .params = {}, .body = {}}};
  for (const char* number : numbers) e.numbers.push_back(AddScalar(b_, e.f, number, DType::kF32));
  e.batch = AddScalar(b_, e.f, "batch", t());
  e.row = AddScalar(b_, e.f, "row", t());
  e.column = AddScalar(b_, e.f, "column", t());
  if (results > 0) e.result = AddArray(b_, e.f, "result", DType::kF32, results, true);
  e.at = ScoreIndex(b_, e.f.body, a_.exp, e.batch, e.row, e.column);
  return e;
}

void AttentionGradFunctions::AddScore(Call& call, bool inside) {
  Element e = Begin(inside ? "inside" : "score", {"value", "of_row", "beside"});
  const Expr value = e.numbers[0], of_row = e.numbers[1];
  ValueScope values(b_, e.f.body);
  values.Bind(a_.product, e.at, RoundThrough(g_[a_.product].dtype, value));
  values.Bind(a_.stats, BroadcastIndex(b_, g_[a_.stats], e.at), of_row);
  if (beside_ != graph::kAbsent)
    values.Bind(beside_, BroadcastIndex(b_, g_[beside_], e.at), e.numbers[2]);
  if (inside) {
    if (a_.product_mask) BindMasks(values, e.at, {*a_.product_mask});
    std::vector<ScoreMask> known;  // the first one first
    for (auto mask = a_.masks.rbegin(); mask != a_.masks.rend(); ++mask)
      if (!BoundsOf(g_, *mask).empty()) known.push_back(*mask);
    BindMasks(values, e.at, known);
  }
  const GraphView view(g_);
  const TensorId exponent =
      IsShifted() ? view.Producer(a_.exp)->inputs[0] : view.Producer(a_.shifted)->inputs[0];
  e.f.body.push_back(
      {tile::Store{e.result, b_.Idx(0), tile::Cast(DType::kF32, values.Value(exponent, e.at))}});
  call.functions.push_back(std::move(e.f));
}

// True if masks stand between the statistics and the exponential.
bool AttentionGradFunctions::IsShifted() const {
  const GraphView view(g_);
  return !view.Same(view.Producer(a_.exp)->inputs[0], a_.shifted);
}

// Binds the scores that masks let through.
void AttentionGradFunctions::BindMasks(ValueScope& values, const Index& at,
                                       const std::vector<ScoreMask>& masks) const {
  for (const ScoreMask& mask : masks)
    values.Bind(mask.masked, at, RoundThrough(g_[mask.masked].dtype, values.Value(mask.value, at)));
}

// Binds what weights and slopes take: the exponential, the random bit, and what selects nothing
// more.
void AttentionGradFunctions::BindWeights(ValueScope& values, const Index& at,
                                         const Element& e) const {
  values.Bind(a_.exp, at, e.numbers[0]);
  if (a_.kept != graph::kAbsent) values.Bind(a_.kept, at, e.numbers[1]);
}

// Binds those of the spare selections that `wanted` is made of.
void AttentionGradFunctions::BindSpares(ValueScope& values, const Index& at,
                                        TensorId wanted) const {
  const GraphView view(g_);
  std::set<graph::NodeId> before;
  std::vector<TensorId> pending = {wanted};
  while (!pending.empty()) {
    const TensorId id = pending.back();
    pending.pop_back();
    const graph::NodeId n = view.ProducerId(id);
    const bool is_map = n >= 0 && g_.nodes[n].op == graph::GraphOp::kMap;
    if (!is_map || id == a_.exp || !before.insert(n).second) continue;
    const auto& inputs = g_.nodes[n].inputs;
    pending.insert(pending.end(), inputs.begin(), inputs.end());
  }
  std::vector<ScoreMask> spares = a_.spares;
  std::ranges::sort(spares, {},
                    [&](const ScoreMask& mask) { return view.ProducerId(mask.masked); });
  std::erase_if(spares, [&](const ScoreMask& mask) {
    return !before.contains(view.ProducerId(mask.masked));
  });
  BindMasks(values, at, spares);
}

// 1 where no known mask of the exponential hides it, else 0.
void AttentionGradFunctions::AddVisible(Call& call) {
  Element e = Begin("visible", {});
  ValueScope values(b_, e.f.body);
  Expr all = tile::Bool(true);
  for (const ScoreMask& mask : a_.zeroes)
    all = tile::And(all, tile::Cast(DType::kBool, values.Value(mask.visible, e.at)));
  e.f.body.push_back(
      {tile::Store{e.result, b_.Idx(0), tile::Select(all, tile::Float(1), tile::Float(0))}});
  call.config.push_back({attention::kZeroes, a_.zeroes.empty() ? 0 : 1});
  call.functions.push_back(std::move(e.f));
}

// The random bits that those of places are made of, if every place has its own.
std::optional<RandomHalf> AttentionGradFunctions::RandomOfPlaces() const {
  const GraphView view(g_);
  std::vector<TensorId> pending;
  if (a_.kept != graph::kAbsent) pending.push_back(a_.kept);
  std::set<TensorId> seen;
  while (!pending.empty()) {
    const TensorId id = pending.back();
    pending.pop_back();
    const graph::NodeId n = view.ProducerId(id);
    if (n < 0 || g_.nodes[n].op != graph::GraphOp::kMap || !seen.insert(id).second) continue;
    const auto random = RandomHalfOf(view, id);
    if (random && g_[random->half].dims == g_[a_.exp].dims) return random;
    const auto& inputs = g_.nodes[n].inputs;
    pending.insert(pending.end(), inputs.begin(), inputs.end());
  }
  return std::nullopt;
}

// Place, seed and offset of the random word of a score.
void AttentionGradFunctions::AddRandom(Call& call) {
  Call::Function f{.name = "random", .params = {}, .body = {}};
  const Expr batch = AddScalar(b_, f, "batch", t()), row = AddScalar(b_, f, "row", t());
  const Expr column = AddScalar(b_, f, "column", t());
  const std::string result = AddArray(b_, f, "result", DType::kI64, 3, true);
  const auto random = RandomOfPlaces();
  if (random) {
    const Index at = ScoreIndex(b_, f.body, a_.exp, batch, row, column);
    ValueScope values(b_, f.body);
    const TensorId parts[] = {random->place, random->seed, random->offset};
    for (int i = 0; i < 3; ++i) {
      const Expr value = values.Value(parts[i], BroadcastIndex(b_, g_[parts[i]], at));
      f.body.push_back({tile::Store{result, b_.Idx(i), tile::Cast(DType::kI64, value)}});
    }
  }
  int share = 0;
  if (random) share = SharesPhilox(g_, *random) ? kOfPhilox : 1;
  call.config.push_back({attention::kRandom, share});
  call.functions.push_back(std::move(f));
}

void AttentionGradFunctions::AddKept(Call& call) {
  Call::Function f{.name = "kept", .params = {}, .body = {}};
  const Expr word = AddScalar(b_, f, "drawn", DType::kI64), batch = AddScalar(b_, f, "batch", t());
  const Expr row = AddScalar(b_, f, "row", t()), column = AddScalar(b_, f, "column", t());
  const std::string result = AddArray(b_, f, "result", DType::kF32, 1, true);
  Expr kept = tile::Float(1);
  if (a_.kept != graph::kAbsent) {
    const Index at = ScoreIndex(b_, f.body, a_.exp, batch, row, column);
    ValueScope values(b_, f.body);
    if (const auto random = RandomOfPlaces()) values.Bind(random->half, at, word);
    kept = tile::Cast(DType::kF32, values.Value(a_.kept, at));
  }
  f.body.push_back({tile::Store{result, b_.Idx(0), kept}});
  call.config.push_back({attention::kKept, a_.kept != graph::kAbsent ? 1 : 0});
  call.functions.push_back(std::move(f));
}

// Returns whether it is more than the exponential.
bool AttentionGradFunctions::AddWeight(Call& call) {
  Element e = Begin("weight", {"value", "keeps"});
  ValueScope values(b_, e.f.body);
  BindWeights(values, e.at, e);
  BindSpares(values, e.at, a_.weight);
  const bool rounds = EightBits(g_[a_.weight].dtype) != 0;  // the caller does
  const Expr value = values.Value(a_.weight, e.at);
  const Expr weight = tile::Cast(DType::kF32, rounds ? Unrounded(e.f.body, value) : value);
  const bool is_plain = tile::Equal(weight, e.numbers[0]);
  if (is_plain) e.f.body.clear();
  e.f.body.push_back({tile::Store{e.result, b_.Idx(0), weight}});
  call.functions.push_back(std::move(e.f));
  return !is_plain;
}

void AttentionGradFunctions::AddSlope(Call& call) {
  const bool has_bias = a_.dbias != graph::kAbsent;
  const bool rounds = EightBits(g_[a_.slope].dtype) != 0;  // the caller does
  Element e = Begin("slope", {"value", "keeps", "product", "of_row", "grad", "mean"},
                    has_bias || a_.largest_slope ? 2 : 1);
  if (!a_.is_plain) {
    ValueScope values(b_, e.f.body);
    BindWeights(values, e.at, e);
    values.Bind(a_.product, e.at, RoundThrough(g_[a_.product].dtype, e.numbers[2]));
    values.Bind(a_.stats, BroadcastIndex(b_, g_[a_.stats], e.at), e.numbers[3]);
    values.Bind(a_.inner, e.at, RoundThrough(g_[a_.inner].dtype, e.numbers[4]));
    values.Bind(a_.mean, BroadcastIndex(b_, g_[a_.mean], e.at), e.numbers[5]);
    if (a_.product_mask) BindMasks(values, e.at, {*a_.product_mask});
    BindSpares(values, e.at, a_.slope);
    if (a_.largest_slope)
      e.f.body.push_back(
          {tile::Store{e.result, b_.Idx(1),
                       tile::Cast(DType::kF32, values.Value(a_.largest_slope->value, e.at))}});
    const Expr rounded = values.Value(a_.slope, e.at);
    const Expr slope = tile::Cast(DType::kF32, rounds ? Unrounded(e.f.body, rounded) : rounded);
    e.f.body.push_back({tile::Store{e.result, b_.Idx(0), slope}});
    if (has_bias)
      e.f.body.push_back({tile::Store{e.result, b_.Idx(1),
                                      tile::Cast(DType::kF32, values.Value(a_.bias_slope, e.at))}});
  }
  call.config.push_back({attention::kEight, EightBits(g_[a_.slope].dtype)});
  call.config.push_back(
      {attention::kPeaks,
       (a_.largest_slope ? 1 : 0) + (a_.of_dk.largest ? 2 : 0) + (a_.of_dv.largest ? 4 : 0)});
  call.config.push_back({attention::kSlopes, a_.is_plain ? 0 : 1});
  call.config.push_back({attention::kKeepsScores, Uses(e.f.body, e.numbers[2]) ? 1 : 0});
  call.config.push_back({attention::kSlopesOfRows, Uses(e.f.body, e.numbers[3]) ? 1 : 0});
  call.functions.push_back(std::move(e.f));
}

// Adds to the sum that a place of the scores belongs to.
void AttentionGradFunctions::AddBias(Call& call) {
  const bool has_bias = a_.dbias != graph::kAbsent;
  Element e = Begin("add_bias", {"value"}, 0);
  if (!bias_sums_.empty()) {
    const graph::Tensor& y = g_[a_.dbias];
    const Index at = BroadcastIndex(b_, y, e.at);
    Expr place = b_.Idx(0);
    for (size_t d = 0; d < at.size(); ++d)
      place = place * b_.Extent(a_.dbias, static_cast<int64_t>(d)) + at[d];
    e.f.body.push_back({tile::AtomicAdd{bias_sums_, place, e.numbers[0]}});
  } else {
    e.f.body.clear();
  }
  const Dims& scores = g_[a_.exp].dims;
  const auto is_summed = [&](size_t back) {
    return has_bias && scores.size() >= back && g_[a_.dbias].dims[scores.size() - back] == 1 &&
           scores[scores.size() - back] > 1;
  };
  call.config.push_back({attention::kBias, has_bias ? 1 : 0});
  call.config.push_back({attention::kBiasHeads, is_summed(3) ? 1 : 0});
  call.config.push_back({attention::kBiasBatches, is_summed(4) ? 1 : 0});
  call.functions.push_back(std::move(e.f));
}

void AttentionGradFunctions::AddScale(Call& call) {
  Call::Function f{.name = "scale", .params = {}, .body = {}};
  const Expr batch = AddScalar(b_, f, "batch", t());
  const std::string result = AddArray(b_, f, "result", DType::kF32, 1, true);
  const Index at = ScoreIndex(b_, f.body, a_.exp, batch, b_.Idx(0), b_.Idx(0));
  ValueScope values(b_, f.body);
  Expr product = tile::Float(1);
  for (const TensorId id : a_.scales)
    product = product * tile::Cast(DType::kF32, values.Value(id, BroadcastIndex(b_, g_[id], at)));
  f.body.push_back({tile::Store{result, b_.Idx(0), product}});
  call.functions.push_back(std::move(f));
}

void AttentionGradFunctions::AddRows(Call& call) {
  Call::Function f{.name = "rows", .params = {}, .body = {}};
  const Expr batch = AddScalar(b_, f, "batch", t()), row = AddScalar(b_, f, "row", t());
  const std::string result = AddArray(b_, f, "result", DType::kF32, 2, true);
  const Index at = ScoreIndex(b_, f.body, a_.exp, batch, row, b_.Idx(0));
  ValueScope values(b_, f.body);
  int place = 0;
  for (const TensorId id : {a_.stats, a_.mean})
    f.body.push_back(
        {tile::Store{result, b_.Idx(place++),
                     tile::Cast(DType::kF32, values.Value(id, BroadcastIndex(b_, g_[id], at)))}});
  call.functions.push_back(std::move(f));
}

void AttentionGradFunctions::AddFinish(Call& call, const char* name, TensorId result,
                                       const GradFinish& finish) {
  Call::Function f{.name = name, .params = {}, .body = {}};
  const Expr value = AddScalar(b_, f, "value", DType::kF32);
  const Expr head = AddScalar(b_, f, "head", t()), row = AddScalar(b_, f, "row", t());
  const Expr column = AddScalar(b_, f, "column", t());
  const std::string to = AddArray(b_, f, "result", DType::kF32, finish.largest ? 2 : 1, true);
  const Index at = ScoreIndex(b_, f.body, result, head, row, column);
  ValueScope values(b_, f.body);
  values.Bind(finish.from, at, value);
  if (finish.largest)
    f.body.push_back({tile::Store{
        to, b_.Idx(1), tile::Cast(DType::kF32, values.Value(finish.largest->value, at))}});
  const Expr rounded = values.Value(result, at);
  const Expr last = tile::Cast(DType::kF32, Unrounded(f.body, rounded));
  f.body.push_back({tile::Store{to, b_.Idx(0), last}});
  call.functions.push_back(std::move(f));
}

void AttentionGradFunctions::AddFinishes(Call& call) {
  AddFinish(call, "finish_keys", a_.dk, a_.of_dk);
  AddFinish(call, "finish_values", a_.dv, a_.of_dv);
  call.config.push_back({attention::kEightKeys, EightBits(g_[a_.dk].dtype)});
  call.config.push_back({attention::kEightValues, EightBits(g_[a_.dv].dtype)});
}

void AttentionGradFunctions::Add(Call& call, std::string bias_sums, TensorId beside) {
  bias_sums_ = std::move(bias_sums);
  beside_ = beside;
  AddScore(call, false);
  AddScore(call, true);
  AddFactor(b_, a_.exp, FactorOf(g_, a_), call);
  AddLimits(b_, a_.exp, MasksOf(a_), call);
  call.config.push_back({attention::kHides, a_.masks.empty() ? 0 : 1});
  call.config.push_back({attention::kShifted, IsShifted() ? 1 : 0});
  AddVisible(call);
  AddRandom(call);
  AddKept(call);
  call.config.push_back({attention::kWeights, AddWeight(call) ? 1 : 0});
  AddSlope(call);
  AddBias(call);
  AddScale(call);
  AddRows(call);
}

}  // namespace kiln::compiler
