// Lists of the heuristics without repetitions, and plans for them.
#include "bench/contract/plans.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <set>
#include <utility>

#include "bench/contract/parallel.h"
#include "tests/support/cases_rank.h"

namespace kiln::bench {
namespace {

using testing::Case;
using testing::CaseOp;
using testing::CaseTensor;
using testing::ClientError;
using testing::ConfigFacts;
using testing::Cudnn;
using testing::Graph;

struct ModeRow {
  const char* name;
  cudnnBackendHeurMode_t mode;
};
constexpr ModeRow kModes[] = {
    {"A", CUDNN_HEUR_MODE_A}, {"B", CUDNN_HEUR_MODE_B}, {"FALLBACK", CUDNN_HEUR_MODE_FALLBACK}};

// NVIDIA's plans on tensor cores round f32, whether they say so or not: mean errors of 3e-4 were
// seen. Left out at once, they take no exact plan's place. All others are judged by their errors,
// too (contract_check.cc).
bool LosesF32(Side side, const ConfigFacts& facts) {
  return facts.Has(CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS) ||
         (side == Side::kNvidia && facts.Has(CUDNN_NUMERICAL_NOTE_TENSOR_CORE));
}

std::string FirstLine(const std::string& text) { return text.substr(0, text.find('\n')); }

}  // namespace

Case FormFor(Side side, const Case& c) {
  const bool is_1d = std::ranges::any_of(c.ops, [&](const CaseOp& op) {
    return op.name.starts_with("conv_") &&
           c.tensors[static_cast<size_t>(op.inputs[0])].dims.size() == 3;
  });
  if (side == Side::kOurs) return c;
  if (!is_1d) return testing::FormsForNvidia(c)[0];
  Case form = c;
  for (CaseTensor& tensor : form.tensors) {
    tensor.strides.insert(tensor.strides.begin() + 2, tensor.dims[2] * tensor.strides[2]);
    tensor.dims.insert(tensor.dims.begin() + 2, 1);
  }
  for (CaseOp& op : form.ops) {
    for (const auto& [key, neutral] :
         {std::pair{"pad", "0,"}, {"post", "0,"}, {"stride", "1,"}, {"dilation", "1,"}}) {
      if (op.Has(key)) op.attributes[key] = neutral + op.attributes[key];
    }
  }
  return form;
}

std::unique_ptr<PlanMakers> PlanMakers::Open(testing::GpuDevice& device, const Settings& settings,
                                             std::string* error) {
  std::unique_ptr<PlanMakers> made(new PlanMakers(device, settings));
  for (int i = 0; i < std::max(1, settings.threads); ++i) {
    Maker maker;
    // NVIDIA's first: its loader finds its own parts by name and must not meet ours.
    if (!settings.nvidia.empty()) {
      maker.nvidia = Cudnn::Open(settings.nvidia, device.stream(), error);
      if (!maker.nvidia) return *error = settings.nvidia + ": " + *error, nullptr;
    }
    maker.ours = Cudnn::Open(settings.ours, device.stream(), error);
    if (!maker.ours) return *error = settings.ours + ": " + *error, nullptr;
    made->makers_.push_back(std::move(maker));
  }
  return made;
}

std::vector<PlanMakers::Offers> PlanMakers::Make(
    const std::vector<const Problem*>& problems,
    const std::function<void(int64_t, int64_t)>& progress) {
  std::vector<Offers> offers(problems.size());
  const int64_t sides = nvidia() != nullptr ? 2 : 1;
  const auto count = static_cast<int64_t>(problems.size()) * sides;
  std::atomic<int64_t> done = 0;
  ParallelFor(count, static_cast<int>(makers_.size()), [&](int64_t item, int thread) {
    device_.BindThread();
    const auto at = static_cast<size_t>(item / sides);
    const Maker& maker = makers_[static_cast<size_t>(thread)];
    if (item % sides == 0) {
      MakeOffer(Side::kOurs, *maker.ours, *problems[at], offers[at].ours);
    } else {
      MakeOffer(Side::kNvidia, *maker.nvidia, *problems[at], offers[at].nvidia);
    }
    progress(++done, count);
  });
  return offers;
}

void PlanMakers::MakeOffer(Side side, const Cudnn& cudnn, const Problem& problem,
                           Offer& offer) const {
  const auto refuse = [&](const std::string& why) {
    if (offer.refusal.empty()) offer.refusal = FirstLine(why);
  };
  ClientError error;
  offer.graph = Graph::Build(cudnn, FormFor(side, problem.graph), &error);
  if (!offer.graph) return refuse(error.text);
  const size_t most = side == Side::kOurs ? settings_.most_ours : settings_.most_nvidia;
  std::set<std::string> seen;
  std::set<int64_t> engines;
  const auto loses_f32 = [&](const ConfigFacts& facts) {
    return problem.keeps_f32 && LosesF32(side, facts);
  };
  const auto take = [&](size_t config, const char* mode) {
    const ConfigFacts facts = offer.graph->FactsOf(config);
    engines.insert(facts.engine);
    if (!seen.insert(facts.Text()).second) return;
    ++offer.offered;
    if (loses_f32(facts) || offer.candidates.size() >= most) {
      ++offer.left_out;
      return;
    }
    auto plan = offer.graph->MakePlan(config, &error);
    if (!plan) {
      ++offer.refused;
      return refuse(error.text);
    }
    offer.candidates.push_back(
        {.label = facts.Text(), .mode = mode, .cudnn = &cudnn, .plan = std::move(plan)});
  };
  // The beginnings of the modes' lists; the best few that count of every mode come before the
  // limit.
  std::vector<size_t> begins;
  for (const ModeRow& row : kModes) {
    begins.push_back(offer.graph->configs());
    if (error = offer.graph->AddMode(row.mode); !error.ok()) refuse(error.text);
  }
  begins.push_back(offer.graph->configs());
  constexpr size_t kFront = 4;
  for (const bool front : {true, false}) {
    for (size_t mode = 0; mode < std::size(kModes); ++mode) {
      size_t middle = begins[mode];
      for (size_t counted = 0; counted < kFront && middle < begins[mode + 1]; ++middle)
        counted += loses_f32(offer.graph->FactsOf(middle)) ? 0 : 1;
      const size_t begin = front ? begins[mode] : middle, end = front ? middle : begins[mode + 1];
      for (size_t config = begin; config < end; ++config) take(config, kModes[mode].name);
    }
  }
  if (side == Side::kOurs || !settings_.every_engine) return;
  const size_t before = offer.graph->configs();
  if (error = offer.graph->AddEngines(engines); !error.ok()) refuse(error.text);
  for (size_t config = before; config < offer.graph->configs(); ++config) take(config, "engine");
}

}  // namespace kiln::bench
