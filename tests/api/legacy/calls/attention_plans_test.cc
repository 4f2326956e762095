// The plans of multi-head attention on GPUs, without one: its graphs, as its calls make them for a
// session that records them, are compiled for sm_90 and sm_80. Attention is one group, on one of
// the engines of attention, in both directions; projections with their biases are one product each.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "api/legacy/calls/attn_problem.h"
#include "api/legacy/plans/call_plans.h"
#include "compiler/compile.h"
#include "include/v9/cudnn_adv.h"

namespace kiln::api::legacy {
namespace {

// Takes every graph and writes it down by its name.
class RecordingSession final : public Session {
 public:
  const Target& target() const override { return target_; }
  std::shared_ptr<Session> Limited(int) override { return shared_from_this(); }
  std::vector<int64_t> EnginesOf(const graph::Graph&) const override { return {kCompilersChoice}; }
  Result<EngineFacts> Describe(const graph::Graph&, int64_t) const override {
    return EngineFacts{};
  }
  Result<std::vector<EngineConfig>> Rank(const graph::Graph& graph,
                                         const RankOptions&) const override {
    graphs_.push_back(graph);
    return std::vector<EngineConfig>{{.engine = 0, .knobs = {}}};
  }
  void Remember(const EngineConfig&) override {}
  bool IsReady(const graph::Graph&, const EngineConfig&) const override { return false; }
  Result<Footprint> Measure(const graph::Graph&, const EngineConfig&) const override {
    return Footprint{};
  }
  Result<std::shared_ptr<const Plan>> Build(const graph::Graph&, const EngineConfig&,
                                            const BuildOptions&) override {
    return Status::Text(Code::kNotSupported, "nothing is built here");
  }
  Status Execute(const Plan&, std::span<void* const>, void*, void*) override { return {}; }
  Status FillGraph(const Plan&, std::span<void* const>, void*, void*, GraphUse) override {
    return {};
  }

  std::vector<graph::Graph> Take() { return std::exchange(graphs_, {}); }

 private:
  Target target_ = *TargetFromArch("sm_90a");
  mutable std::vector<graph::Graph> graphs_;
};

// A transformer's layer: 8 heads of 64, three sequences.
struct Layer {
  const char* name;
  int type = CUDNN_DATA_HALF;
  std::vector<int> lo, hi;  // none: all keys
  bool ends_early = false;
  int beam = 1, steps = 256, keys = 384;
};

constexpr int kHeads = 8, kDepth = 64, kSize = 512, kBatch = 3;

AttnDesc DescOf(const Layer& layer) {
  return {.mode = CUDNN_ATTN_ENABLE_PROJ_BIASES,
          .heads = kHeads,
          .scale = 0.125,
          .type = layer.type,
          .compute = CUDNN_DATA_FLOAT,
          .math = 0,
          .most_queries = layer.steps,
          .most_keys = layer.keys,
          .most_batch = kBatch,
          .most_beam = layer.beam,
          .size = {kSize, kSize, kSize},
          .projected = {kDepth, kDepth, kDepth, kSize},
          .attn_dropout = nullptr,
          .post_dropout = nullptr};
}

SeqData Sequence(const Layer& layer, int steps, int beam) {
  SeqData data;
  data.type = layer.type;
  data.dims = {steps, kBatch, beam, kSize};
  data.axes = {1, 2, 0, 3};
  data.lengths.assign(static_cast<size_t>(kBatch * beam), steps);
  if (layer.ends_early) data.lengths[0] = steps / 2;
  return data;
}

void* Memory(uintptr_t i) { return reinterpret_cast<void*>((i + 1) << 30); }

// The graphs of a training step, by their names.
std::map<std::string, std::vector<graph::Graph>> GraphsOf(const Layer& layer) {
  const auto session = std::make_shared<RecordingSession>();
  Handle handle = {.session = session, .stream = nullptr, .plans = &CallPlans::Of(*session)};
  static std::vector<std::shared_ptr<RecordingSession>> kept;  // their plans stay as long
  kept.push_back(session);
  const AttnDesc desc = DescOf(layer);
  const SeqData q = Sequence(layer, layer.steps, layer.beam), k = Sequence(layer, layer.keys, 1);
  const auto problem = AttnProblem::Of(desc, {&q, &k, &k, &q}, -1);
  const auto memory = AttnMemory::Of(desc);
  EXPECT_TRUE(problem.ok() && memory.ok());
  const std::vector<int> none(static_cast<size_t>(layer.steps), 0),
      all(static_cast<size_t>(layer.steps), layer.keys);
  const int* const lo = layer.lo.empty() ? none.data() : layer.lo.data();
  const int* const hi = layer.hi.empty() ? all.data() : layer.hi.data();
  AttnCalls calls = AttnCalls::Measuring(handle, false);
  const Status forward = RunForward(calls, {.problem = *problem,
                                            .memory = *memory,
                                            .lo = lo,
                                            .hi = hi,
                                            .query_lengths = Memory(0),
                                            .key_lengths = Memory(1),
                                            .queries = Memory(2),
                                            .residuals = Memory(3),
                                            .keys = Memory(4),
                                            .values = Memory(5),
                                            .out = Memory(6),
                                            .weights = Memory(7),
                                            .work = Memory(8),
                                            .reserve = Memory(9)});
  EXPECT_TRUE(forward.ok()) << forward.message();
  const AttnBackward backward = {.problem = *problem,
                                 .memory = *memory,
                                 .lo = lo,
                                 .hi = hi,
                                 .query_lengths = Memory(0),
                                 .key_lengths = Memory(1),
                                 .dout = Memory(6),
                                 .queries = Memory(2),
                                 .keys = Memory(4),
                                 .values = Memory(5),
                                 .dqueries = Memory(10),
                                 .dkeys = Memory(11),
                                 .dvalues = Memory(12),
                                 .weights = Memory(7),
                                 .dweights = Memory(13),
                                 .adds = false,
                                 .work = Memory(8),
                                 .reserve = Memory(9)};
  for (const Status& status :
       {RunBackwardData(calls, backward), RunBackwardWeights(calls, backward)})
    EXPECT_TRUE(status.ok()) << status.message();
  std::map<std::string, std::vector<graph::Graph>> graphs;
  for (graph::Graph& graph : session->Take()) graphs[graph.name].push_back(std::move(graph));
  return graphs;
}

// "attention_sm90" or "rows, attention_grad_sm90": the engines of the plan's groups.
std::string EnginesOf(const graph::Graph& graph, const char* arch) {
  const auto plan = compiler::Compile(graph, *TargetFromArch(arch));
  if (!plan.ok()) return std::string(plan.status().message());
  std::string engines;
  for (const compiler::GroupReport& group : plan->groups)
    engines += (engines.empty() ? "" : ", ") + group.engine;
  return engines;
}

std::vector<Layer> Layers() {
  std::vector<Layer> layers = {{.name = "all keys"},
                               {.name = "bf16", .type = CUDNN_DATA_BFLOAT16},
                               {.name = "causal"},
                               {.name = "sliding"},
                               {.name = "no rule"},
                               {.name = "causal, ends early", .ends_early = true},
                               {.name = "beams", .ends_early = true, .beam = 4}};
  for (int t = 0; t < layers[0].steps; ++t) {
    for (const size_t causal : {2, 3, 5}) layers[causal].hi.push_back(t + 1);
    layers[3].lo.push_back(t - 31);
    layers[4].lo.push_back(t * 7 % 11);
    layers[4].hi.push_back(t * 5 % 300 + 20);
  }
  return layers;
}

TEST(AttentionPlans, AttentionRunsOnTheEnginesOfAttention) {
  for (const Layer& layer : Layers()) {
    const auto graphs = GraphsOf(layer);
    for (const auto& [arch, name] : {std::pair("sm_90a", "sm90"), std::pair("sm_80", "sm80")}) {
      SCOPED_TRACE(std::string(layer.name) + " on " + arch);
      ASSERT_EQ(graphs.at("cudnnMultiHeadAttn, attention").size(), 1u);
      EXPECT_EQ(EnginesOf(graphs.at("cudnnMultiHeadAttn, attention")[0], arch),
                std::string("attention_") + name);
      ASSERT_EQ(graphs.at("cudnnMultiHeadAttn, gradients").size(), 1u);
      EXPECT_EQ(EnginesOf(graphs.at("cudnnMultiHeadAttn, gradients")[0], arch),
                std::string("reduce, attention_grad_") + name);
    }
  }
}

TEST(AttentionPlans, ProjectionsAreOneProductEach) {
  const std::vector<Layer> layers = Layers();
  for (const Layer* layer : {&layers[0], &layers[5]}) {
    const auto graphs = GraphsOf(*layer);
    for (const char* name :
         {"cudnnMultiHeadAttn, input", "cudnnMultiHeadAttn, output",
          "cudnnMultiHeadAttn, output's gradient", "cudnnMultiHeadAttn, input's gradient"})
      for (const graph::Graph& graph : graphs.at(name)) {
        EXPECT_EQ(EnginesOf(graph, "sm_90a"), "wgmma_sm90") << layer->name << ": " << name;
        EXPECT_EQ(EnginesOf(graph, "sm_80"), "contract_mma") << layer->name << ": " << name;
      }
  }
}

}  // namespace
}  // namespace kiln::api::legacy
