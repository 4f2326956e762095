// Every engine on the emulated GPU (tests/support/emulated_gpu) against the oracle, over cases of
// tests/cases that are small enough for it: the kernels that Kiln prints are run, and not only
// compiled, on a machine without a GPU. A configuration that an engine prefers, and one at the end
// of a knob. engines_gpu_test is what runs all of them, on a device.
//
// EMULATED_GPU_ARCH is sm_90 or sm_80. KILN_TEST_SEED=… repeats a run.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>

#include "compiler/compile.h"
#include "compiler/engines/registry.h"
#include "runtime/device_select.h"
#include "tests/numerics/engine_runs.h"
#include "tests/support/runner.h"

namespace kiln::testing {
namespace {

struct EmulatedRun {
  const char* engine;
  const char* label;  // the case's file:list/name
  int least_sm = 80;  // of the devices that it runs on
};

constexpr EmulatedRun kRuns[] = {
    {"pointwise", "pointwise.txt:smoke/gelu"},
    {"pointwise", "pointwise.txt:smoke/select"},
    {"pointwise", "pointwise.txt:smoke/transpose_copy"},
    {"pointwise", "parts.txt:smoke/mask"},
    {"pointwise", "parts.txt:views/slice_steps"},
    {"pointwise", "rope.txt:smoke/part"},
    {"pointwise", "rope.txt:smoke/backward"},
    {"reduce", "reduction.txt:smoke/row_sum"},
    {"reduce", "reduction.txt:smoke/column_max"},
    {"reduce", "reduction.txt:smoke/full_amax"},
    {"rows", "rows.txt:smoke/softmax"},
    {"rows", "rows.txt:smoke/softmax_grad"},
    {"rows", "parts.txt:softmax/sink_log2"},
    {"columns", "columns.txt:smoke/batch"},
    {"columns", "columns.txt:smoke/batch_grad"},
    {"window", "window.txt:smoke/max"},
    {"window", "window.txt:smoke/max_bwd"},
    {"window", "window.txt:smoke/bilinear"},
    {"contract_simt", "contract.txt:fprop/f32_nchw"},
    {"contract_simt", "contract.txt:fprop/f64"},
    {"contract_simt", "contract.txt:wgrad/f32"},
    {"contract_simt", "moe.txt:backward/f32"},
    {"contract_mma", "contract.txt:fprop/f16"},
    {"contract_mma", "contract.txt:fprop/i8"},
    {"contract_mma", "contract.txt:dgrad/strided"},
    {"contract_mma", "contract.txt:wgrad/f16"},
    {"contract_mma", "contract.txt:fprop/e4m3", 90},
    {"contract_mma_tf32", "contract.txt:f32/one_by_one"},
    {"contract_mma_tf32", "contract.txt:f32/tn"},
    {"contract_mma_atomic", "contract.txt:wgrad/f16"},
    {"conv_direct", "conv_direct.txt:smoke/depthwise_3x3"},
    {"conv_direct", "conv_direct.txt:smoke/grouped_16"},
    {"conv_direct", "conv_direct.txt:smoke/depthwise_wgrad"},
    {"conv_first_layer", "contract.txt:fprop/three_channels"},
    {"conv_first_layer", "contract.txt:dgrad/three_channels_s2"},
    {"attention_sm80", "attention.txt:smoke/plain"},
    {"attention_sm80", "attention.txt:smoke/causal"},
    {"attention_sm80", "parts.txt:smoke/attention"},
    {"attention_sm80", "parts.txt:attention/sink"},
    {"attention_decode", "decode.txt:smoke/plain"},
    {"attention_decode", "decode.txt:smoke/pages"},
    {"attention_grad_sm80", "attention.txt:gradients/depth_40"},
    {"attention_grad_sm80_atomic", "attention.txt:gradients/depth_40"},
    {"attention_sm80_tf32", "attention.txt:f32/causal"},
    {"attention_sm80_tf32", "attention.txt:f32/heads_share"},
    {"attention_sm80_f32", "attention.txt:f32/causal"},
    {"attention_sm80_f32", "attention.txt:f32/bias"},
    {"attention_sm80_f32", "attention.txt:f32/depth_256"},
    {"attention_grad_sm80_tf32", "attention.txt:f32/grad_window"},
    {"attention_grad_sm80_tf32", "attention.txt:f32/grad_one_tile"},
    {"attention_grad_sm80_f32", "attention.txt:f32/grad_window"},
    {"attention_grad_sm80_f32", "attention.txt:f32/grad_one_tile"},
    {"attention_grad_sm80_f32", "attention.txt:f32/grad_direct"},
    {"winograd", "contract.txt:winograd/nhwc"},
    {"winograd", "contract.txt:winograd/wgrad_pixels"},
    {"wgmma_sm90", "contract.txt:fprop/f16", 90},
    {"wgmma_sm90", "contract.txt:fprop/one_by_one_s2", 90},
    {"wgmma_sm90", "contract.txt:dgrad/strided", 90},
    {"wgmma_sm90", "contract.txt:wgrad/f16", 90},
    {"wgmma_sm90", "contract.txt:fprop/e4m3", 90},
    {"wgmma_sm90", "contract.txt:fprop/i8", 90},
    {"wgmma_sm90", "parts.txt:biases/two_parts", 90},
    {"wgmma_sm90", "parts.txt:biases/beside_a_whole_one", 90},
    {"contract_mma", "parts.txt:biases/two_parts"},
    {"contract_mma", "parts.txt:biases/odd_parts"},
    {"contract_grouped_sm90", "parts.txt:gradients/two_layers", 90},
    {"contract_grouped_sm90", "parts.txt:gradients/biases", 90},
    {"contract_grouped_sm90", "parts.txt:gradients/added", 90},
    {"contract_grouped_sm90", "parts.txt:gradients/two_tensors", 90},
    {"contract_grouped_sm90", "parts.txt:gradients/infinite", 90},
    {"wgmma_sm90_tf32", "contract.txt:f32/one_by_one", 90},
    {"wgmma_sm90_3xtf32", "contract.txt:f32/one_by_one", 90},
    {"conv_halo_sm90", "contract.txt:fprop/bf16", 90},
    {"conv_halo_sm90", "contract.txt:deep/volume_no_padding", 90},
    {"conv_halo_sm90", "contract.txt:deep/wgrad_no_padding", 90},
    {"winograd_sm90", "contract.txt:winograd/nhwc", 90},
    {"attention_sm90", "attention.txt:smoke/plain", 90},
    {"attention_sm90", "attention.txt:smoke/causal", 90},
    {"attention_bytes_sm90", "attention.txt:bytes/images_first", 90},
    {"attention_bytes_sm90", "attention.txt:bytes/bias", 90},
    {"attention_grad_sm90", "attention.txt:gradients/depth_40", 90},
    {"attention_grad_sm90_atomic", "attention.txt:gradients/plain", 90},
};

const Case* FindCase(const std::string& label) {
  static std::map<std::string, CaseFile> files;
  const std::string name = label.substr(0, label.find(':'));
  const auto [file, is_new] = files.try_emplace(name);
  if (is_new) file->second = LoadCases(TestOptions::Get().cases + "/" + name);
  const auto found =
      std::ranges::find_if(file->second.cases, [&](const Case& c) { return c.Label() == label; });
  return found == file->second.cases.end() ? nullptr : &*found;
}

bool HasWgmma() {
  const char* const arch = std::getenv("EMULATED_GPU_ARCH");
  return arch == nullptr || std::string(arch) != "sm_80";
}

std::vector<EmulatedRun> RunsOfDevice() {
  std::vector<EmulatedRun> runs(std::begin(kRuns), std::end(kRuns));
  std::erase_if(runs,
                [&](const EmulatedRun& run) { return run.least_sm > (HasWgmma() ? 90 : 80); });
  return runs;
}

void PrintTo(const EmulatedRun& run, std::ostream* out) {
  *out << run.engine << " of " << run.label;
}

class EmulatedTest : public ::testing::TestWithParam<EmulatedRun> {};

TEST_P(EmulatedTest, AgreesWithTheOracle) {
  const auto device = runtime::DefaultDevice();
  ASSERT_TRUE(device.ok()) << device.status().message();
  const Case* const c = FindCase(GetParam().label);
  ASSERT_NE(c, nullptr) << "no case is called " << GetParam().label;
  const int engine = compiler::EngineIndex(GetParam().engine);
  ASSERT_GE(engine, 0) << "no engine is called " << GetParam().engine;
  const auto number = static_cast<size_t>(
      std::ranges::find(kRuns, std::string_view(GetParam().label), &EmulatedRun::label) - kRuns);
  CaseRuns runs(**device, *c, TestOptions::Get().seed, number, Sample{.extremes = 1, .random = 0});
  ASSERT_EQ(runs.error(), "");
  std::erase_if(runs.runs(), [&](const EngineRun& run) { return run.engine != engine; });
  ASSERT_FALSE(runs.runs().empty()) << GetParam().engine << " does not take " << c->text;
  runs.Evaluate();
  for (EngineRun& run : runs.runs()) {
    runs.Compile(run);
    if (run.failure.empty()) runs.Run(run);
    EXPECT_EQ(run.failure, "") << c->text << "\n  " << run.Name()
                               << "\n  KILN_TEST_SEED=" << TestOptions::Get().seed;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Runs, EmulatedTest, ::testing::ValuesIn(RunsOfDevice()), [](const auto& info) {
      std::string name = std::string(info.param.engine) + "_" + info.param.label;
      std::ranges::replace_if(
          name, [](char ch) { return !std::isalnum(static_cast<unsigned char>(ch)); }, '_');
      return name;
    });

// Three products of TF32 numbers stand for one of f32, on units that cut off what they add: of
// numbers of one sign a sum is as near to the exact one as FMA units', which round, would be.
TEST(EmulatedRuns, SumsOfF32LoseNoMoreThanF32) {
  if (!HasWgmma()) return;
  const auto device = runtime::DefaultDevice();
  ASSERT_TRUE(device.ok()) << device.status().message();
  const Case* const c = FindCase("contract.txt:f32/one_sign");
  ASSERT_NE(c, nullptr);
  CaseRuns runs(**device, *c, TestOptions::Get().seed, 0, Sample{.extremes = 4, .random = 4});
  ASSERT_EQ(runs.error(), "");
  std::erase_if(runs.runs(), [](const EngineRun& run) {
    return run.engine != compiler::EngineIndex("wgmma_sm90_3xtf32");
  });
  ASSERT_FALSE(runs.runs().empty());
  runs.Evaluate();
  runs.Tighten(0.25);
  for (EngineRun& run : runs.runs()) {
    runs.Compile(run);
    if (run.failure.empty()) runs.Run(run);
    EXPECT_EQ(run.failure, "") << run.Name() << "\n  KILN_TEST_SEED=" << TestOptions::Get().seed;
  }
}

// Engines of operations that tests/cases does not have: rnn_emulated_test,
// recurrence_emulated_test, ctc_calls_emulated_test, graph_aggregate_emulated_test,
// peers_emulated_test.
constexpr std::string_view kElsewhere[] = {"recurrence",
                                           "recurrence_sm80",
                                           "recurrence_sm80_tf32",
                                           "recurrence_sm80_f32",
                                           "recurrence_sm90",
                                           "recurrence_sm90_tf32",
                                           "recurrence_stack_sm80",
                                           "recurrence_stack_sm80_tf32",
                                           "recurrence_steps",
                                           "recurrence_steps_tf32",
                                           "ctc",
                                           "segments",
                                           "peers"};

// The list leaves no engine out.
TEST(EmulatedRuns, NameEveryEngine) {
  for (const compiler::Engine& engine : compiler::Engines()) {
    if (std::ranges::find(kElsewhere, engine.name) != std::end(kElsewhere)) continue;
    EXPECT_NE(std::ranges::find(kRuns, std::string_view(engine.name), &EmulatedRun::engine),
              std::end(kRuns))
        << engine.name << " never runs on the emulated GPU";
  }
}

}  // namespace
}  // namespace kiln::testing
