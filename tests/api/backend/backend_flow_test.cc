// The backend API from tensors to numbers, the way frontends use it: parameters and operations
// destroyed early, operations in any order, counts left out, descriptors filled by the library,
// surplus uids.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <set>
#include <thread>

#include "tests/api/client.h"
#include "tests/api/fake_session.h"

namespace {

using namespace client;
using kiln::api::kFakeWorkspace;

// y = relu(conv(x, w) + b) over x [2,3,5,5], w [4,3,3,3], padding 1.
struct ConvBiasRelu {
  cudnnHandle_t handle = nullptr;
  std::vector<float> x = std::vector<float>(2 * 3 * 5 * 5), w = std::vector<float>(4 * 3 * 3 * 3);
  std::vector<float> b = std::vector<float>(4), y = std::vector<float>(2 * 4 * 5 * 5);
  alignas(256) std::array<char, kFakeWorkspace> workspace{};

  explicit ConvBiasRelu(bool with_handle = true) {
    if (with_handle) cudnnCreate(&handle);
    for (size_t i = 0; i < x.size(); ++i)
      x[i] = static_cast<float>(static_cast<int>(i * 7 % 11) - 5);
    for (size_t i = 0; i < w.size(); ++i)
      w[i] = static_cast<float>(static_cast<int>(i * 5 % 7) - 3);
    for (size_t i = 0; i < b.size(); ++i) b[i] = static_cast<float>(static_cast<int>(i) * 4 - 6);
  }
  ~ConvBiasRelu() {
    if (handle != nullptr) cudnnDestroy(handle);
  }

  // All descriptors but the graph's are gone when this returns.
  Desc MakeGraph() const {
    TensorOptions virtual_f32{.is_virtual = true};
    Desc tx = Tensor(1, {2, 3, 5, 5}), tw = Tensor(2, {4, 3, 3, 3}), tb = Tensor(3, {1, 4, 1, 1});
    Desc ty = Tensor(4, {2, 4, 5, 5}), conv_out = Tensor(100, {2, 4, 5, 5}, virtual_f32);
    Desc bias_out = Tensor(101, {2, 4, 5, 5}, virtual_f32);
    Desc conv = ConvForward(tx, tw, conv_out, Convolution(2, 1));
    Desc bias = Pointwise(CUDNN_POINTWISE_ADD, conv_out, &tb, bias_out);
    Desc relu = Pointwise(CUDNN_POINTWISE_RELU_FWD, bias_out, nullptr, ty);
    return Graph(handle, {&relu, &conv, &bias});  // not the order of the data
  }

  std::vector<int64_t> uids() const { return {4, 77, 2, 1, 3}; }  // 77 is none of the graph's
  std::vector<void*> pointers() { return {y.data(), nullptr, w.data(), x.data(), b.data()}; }

  float Expected(int n, int k, int p, int q) const {
    float sum = b[static_cast<size_t>(k)];
    for (int c = 0; c < 3; ++c) {
      for (int r = 0; r < 3; ++r) {
        for (int s = 0; s < 3; ++s) {
          int h = p + r - 1, v = q + s - 1;
          if (h < 0 || h >= 5 || v < 0 || v >= 5) continue;
          sum += x[static_cast<size_t>(((n * 3 + c) * 5 + h) * 5 + v)] *
                 w[static_cast<size_t>(((k * 3 + c) * 3 + r) * 3 + s)];
        }
      }
    }
    return std::max(sum, 0.0f);
  }
  void CheckResult() const {
    for (int n = 0; n < 2; ++n) {
      for (int k = 0; k < 4; ++k) {
        for (int i = 0; i < 25; ++i) {
          ASSERT_EQ(y[static_cast<size_t>((n * 4 + k) * 25 + i)], Expected(n, k, i / 5, i % 5))
              << n << k << i;
        }
      }
    }
  }
};

std::string Json(const Desc& desc,
                 cudnnBackendAttributeName_t name = CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION) {
  int64_t size = 0;
  EXPECT_EQ(cudnnBackendGetAttribute(desc.raw(), name, CUDNN_TYPE_CHAR, 0, &size, nullptr),
            CUDNN_STATUS_SUCCESS);
  std::string text(static_cast<size_t>(size), '?');
  EXPECT_EQ(cudnnBackendGetAttribute(desc.raw(), name, CUDNN_TYPE_CHAR, size, &size, text.data()),
            CUDNN_STATUS_SUCCESS);
  EXPECT_EQ(size, static_cast<int64_t>(text.size()));
  return text;
}

TEST(Flow, FromHeuristicsToNumbers) {
  ConvBiasRelu problem;
  Desc graph = problem.MakeGraph();
  ASSERT_EQ(graph.status(), CUDNN_STATUS_SUCCESS) << graph.error();
  Desc heur = Heuristics(graph, CUDNN_HEUR_MODE_A);
  ASSERT_EQ(heur.status(), CUDNN_STATUS_SUCCESS) << heur.error();
  std::vector<Desc> configs = Results(heur);
  ASSERT_EQ(configs.size(), 2u);
  Desc plan = Plan(problem.handle, configs[0]);
  ASSERT_EQ(plan.status(), CUDNN_STATUS_SUCCESS) << plan.error();
  int64_t workspace = -1;
  ASSERT_EQ(plan.Get(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, &workspace), CUDNN_STATUS_SUCCESS);
  EXPECT_EQ(workspace, kFakeWorkspace);
  cudnnSetStream(problem.handle, reinterpret_cast<cudaStream_t>(0x4560));
  Desc pack = Pack(problem.uids(), problem.pointers(), problem.workspace.data());
  ASSERT_EQ(cudnnBackendExecute(problem.handle, plan.raw(), pack.raw()), CUDNN_STATUS_SUCCESS)
      << LastError();
  problem.CheckResult();
  EXPECT_EQ(kiln::api::LastFakeStream(), reinterpret_cast<void*>(0x4560));
  EXPECT_EQ(problem.workspace[0], 1);
}

TEST(Flow, PacksOfAnyOrderReachTheirTensors) {
  ConvBiasRelu c;
  const Desc plan =
      Plan(c.handle, Results(Heuristics(c.MakeGraph(), CUDNN_HEUR_MODE_INSTANT)).at(0));
  const std::vector<int64_t> uids = c.uids();
  const std::vector<void*> pointers = c.pointers();
  std::vector<size_t> order = {0, 1, 2, 3, 4};
  do {
    std::vector<int64_t> pack_uids;
    std::vector<void*> pack_pointers;
    for (const size_t i : order) {
      pack_uids.push_back(uids[i]);
      pack_pointers.push_back(pointers[i]);
    }
    std::ranges::fill(c.y, -1.0f);
    const Desc pack = Pack(pack_uids, pack_pointers, c.workspace.data());
    ASSERT_EQ(cudnnBackendExecute(c.handle, plan.raw(), pack.raw()), CUDNN_STATUS_SUCCESS)
        << LastError();
    c.CheckResult();
  } while (std::ranges::next_permutation(order).found);
  const Desc without = Pack({}, {}, c.workspace.data());
  EXPECT_EQ(cudnnBackendExecute(c.handle, plan.raw(), without.raw()), CUDNN_STATUS_BAD_PARAM);
}

TEST(Flow, EveryHeuristicModeAnswers) {
  ConvBiasRelu problem;
  Desc graph = problem.MakeGraph();
  for (auto mode : {CUDNN_HEUR_MODE_INSTANT, CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_B}) {
    EXPECT_EQ(Results(Heuristics(graph, mode)).size(), 2u) << mode;
  }
  EXPECT_EQ(Results(Heuristics(graph, CUDNN_HEUR_MODE_FALLBACK)).size(), 1u);
}

TEST(Flow, AFilledConfigurationReadsBack) {
  ConvBiasRelu problem;
  Desc graph = problem.MakeGraph();
  std::vector<Desc> configs = Results(Heuristics(graph, CUDNN_HEUR_MODE_A));
  int64_t workspace = -1, index = -1;
  int32_t shared = -1;
  EXPECT_EQ(configs[0].Get(CUDNN_ATTR_ENGINECFG_WORKSPACE_SIZE, &workspace), CUDNN_STATUS_SUCCESS);
  EXPECT_EQ(configs[0].Get(CUDNN_ATTR_ENGINECFG_SHARED_MEMORY_USED, &shared), CUDNN_STATUS_SUCCESS);
  EXPECT_EQ(workspace, kFakeWorkspace);
  EXPECT_EQ(shared, 1024);

  Desc engine(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  cudnnBackendDescriptor_t raw = engine.raw();
  int64_t count = 0;
  ASSERT_EQ(cudnnBackendGetAttribute(configs[0].raw(), CUDNN_ATTR_ENGINECFG_ENGINE,
                                     CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count, &raw),
            CUDNN_STATUS_SUCCESS);
  EXPECT_EQ(engine.Get(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, &index), CUDNN_STATUS_SUCCESS);
  EXPECT_EQ(index, 1);

  // Notes: the size query asks for all that there are, without a place.
  ASSERT_EQ(cudnnBackendGetAttribute(raw, CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, CUDNN_TYPE_BEHAVIOR_NOTE,
                                     CUDNN_BEHAVIOR_NOTE_TYPE_COUNT, &count, nullptr),
            CUDNN_STATUS_SUCCESS);
  ASSERT_EQ(count, 2);
  cudnnBackendBehaviorNote_t notes[CUDNN_BEHAVIOR_NOTE_TYPE_COUNT];
  ASSERT_EQ(cudnnBackendGetAttribute(raw, CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, CUDNN_TYPE_BEHAVIOR_NOTE,
                                     CUDNN_BEHAVIOR_NOTE_TYPE_COUNT, &count, notes),
            CUDNN_STATUS_SUCCESS);
  ASSERT_EQ(count, 2);
  EXPECT_EQ(notes[1], CUDNN_BEHAVIOR_NOTE_SUPPORTS_CUDA_GRAPH_NATIVE_API);

  // Knobs: more places than knobs.
  std::vector<Desc> infos;
  std::vector<cudnnBackendDescriptor_t> raws;
  for (int i = 0; i < CUDNN_KNOB_TYPE_COUNTS; ++i) {
    raws.push_back(infos.emplace_back(CUDNN_BACKEND_KNOB_INFO_DESCRIPTOR).raw());
  }
  ASSERT_EQ(
      cudnnBackendGetAttribute(raw, CUDNN_ATTR_ENGINE_KNOB_INFO, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                               CUDNN_KNOB_TYPE_COUNTS, &count, raws.data()),
      CUDNN_STATUS_SUCCESS);
  ASSERT_EQ(count, 2);
  cudnnBackendKnobType_t type{};
  int64_t maximum = -1, stride = -1;
  EXPECT_EQ(infos[1].Get(CUDNN_ATTR_KNOB_INFO_TYPE, &type), CUDNN_STATUS_SUCCESS);
  EXPECT_EQ(infos[1].Get(CUDNN_ATTR_KNOB_INFO_MAXIMUM_VALUE, &maximum), CUDNN_STATUS_SUCCESS);
  EXPECT_EQ(infos[1].Get(CUDNN_ATTR_KNOB_INFO_STRIDE, &stride), CUDNN_STATUS_SUCCESS);
  EXPECT_EQ(type, CUDNN_KNOB_TYPE_SPLIT_K);
  EXPECT_EQ(maximum, 8);
  EXPECT_EQ(stride, 2);
  EXPECT_EQ(infos[2].Get(CUDNN_ATTR_KNOB_INFO_TYPE, &type), CUDNN_STATUS_NOT_INITIALIZED)
      << "was not filled";

  Desc layout(CUDNN_BACKEND_LAYOUT_INFO_DESCRIPTOR);
  cudnnBackendDescriptor_t layout_raw = layout.raw();
  ASSERT_EQ(cudnnBackendGetAttribute(raw, CUDNN_ATTR_ENGINE_LAYOUT_INFO,
                                     CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count, &layout_raw),
            CUDNN_STATUS_SUCCESS);
  cudnnBackendLayoutType_t preferred{};
  EXPECT_EQ(layout.Get(CUDNN_ATTR_LAYOUT_INFO_TYPES, &preferred), CUDNN_STATUS_SUCCESS);
  EXPECT_EQ(preferred, CUDNN_LAYOUT_TYPE_PREFERRED_NHWC);
}

std::vector<Desc> ReadDescriptors(cudnnBackendDescriptor_t of, cudnnBackendAttributeName_t name,
                                  cudnnBackendDescriptorType_t kind) {
  std::vector<Desc> places;
  std::vector<cudnnBackendDescriptor_t> raws;
  for (int i = 0; i < CUDNN_KNOB_TYPE_COUNTS; ++i) raws.push_back(places.emplace_back(kind).raw());
  int64_t count = 0;
  EXPECT_EQ(cudnnBackendGetAttribute(of, name, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                     CUDNN_KNOB_TYPE_COUNTS, &count, raws.data()),
            CUDNN_STATUS_SUCCESS);
  while (std::ssize(places) > count) places.pop_back();
  return places;
}

// XLA keeps a configuration as its engine's index and its choices. Of the engine with that index it
// then sets every knob, to -1 where none was chosen.
TEST(Flow, ConfigurationsChooseEveryKnobOfTheirEngine) {
  ConvBiasRelu problem;
  Desc graph = problem.MakeGraph();
  size_t knobs = 0;
  for (const auto mode :
       {CUDNN_HEUR_MODE_INSTANT, CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_B, CUDNN_HEUR_MODE_FALLBACK}) {
    for (const Desc& config : Results(Heuristics(graph, mode))) {
      Desc engine(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
      cudnnBackendDescriptor_t raw = engine.raw();
      int64_t count = 0;
      ASSERT_EQ(cudnnBackendGetAttribute(config.raw(), CUDNN_ATTR_ENGINECFG_ENGINE,
                                         CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count, &raw),
                CUDNN_STATUS_SUCCESS);
      std::multiset<int> of_engine, chosen;
      cudnnBackendKnobType_t type{};
      for (const Desc& knob :
           ReadDescriptors(raw, CUDNN_ATTR_ENGINE_KNOB_INFO, CUDNN_BACKEND_KNOB_INFO_DESCRIPTOR)) {
        EXPECT_EQ(knob.Get(CUDNN_ATTR_KNOB_INFO_TYPE, &type), CUDNN_STATUS_SUCCESS);
        of_engine.insert(type);
      }
      for (const Desc& choice : ReadDescriptors(config.raw(), CUDNN_ATTR_ENGINECFG_KNOB_CHOICES,
                                                CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR)) {
        EXPECT_EQ(choice.Get(CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, &type), CUDNN_STATUS_SUCCESS);
        chosen.insert(type);
      }
      EXPECT_EQ(chosen, of_engine) << "in mode " << mode;
      knobs += of_engine.size();
    }
  }
  EXPECT_GT(knobs, 0u);
}

TEST(Flow, ACustomConfigurationRuns) {
  ConvBiasRelu problem;
  Desc graph = problem.MakeGraph();
  int64_t count = -1;
  ASSERT_EQ(graph.Get(CUDNN_ATTR_OPERATIONGRAPH_ENGINE_GLOBAL_COUNT, &count), CUDNN_STATUS_SUCCESS);
  EXPECT_EQ(count, kiln::api::kFakeEngines);
  auto engine_of = [&](int64_t index) {
    Desc engine(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    engine.Set(CUDNN_ATTR_ENGINE_OPERATION_GRAPH, graph)
        .Set(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, index)
        .Finalize();
    return engine;
  };
  for (int64_t i = 0; i < count; ++i) EXPECT_EQ(engine_of(i).status(), CUDNN_STATUS_SUCCESS) << i;
  EXPECT_EQ(engine_of(count).status(), CUDNN_STATUS_NOT_SUPPORTED);
  EXPECT_NE(engine_of(count).error().find("the graph has engines 0 to"), std::string::npos);
  EXPECT_EQ(engine_of(-1).status(), CUDNN_STATUS_NOT_SUPPORTED);
  Desc engine = engine_of(1);
  ASSERT_EQ(engine.status(), CUDNN_STATUS_SUCCESS) << engine.error();

  auto config_with = [&](cudnnBackendKnobType_t type, int64_t value) {
    Desc choice(CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR);
    choice.Set(CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, type)
        .Set(CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, value)
        .Finalize();
    Desc config(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    config.Set(CUDNN_ATTR_ENGINECFG_ENGINE, engine)
        .Set(CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, {&choice})
        .Finalize();
    return config;
  };
  EXPECT_EQ(config_with(CUDNN_KNOB_TYPE_SPLIT_K, 3).status(), CUDNN_STATUS_NOT_SUPPORTED)
      << "between the steps";
  EXPECT_EQ(config_with(CUDNN_KNOB_TYPE_TILE_M, 4).status(), CUDNN_STATUS_NOT_SUPPORTED)
      << "beyond the maximum";
  EXPECT_EQ(config_with(CUDNN_KNOB_TYPE_STAGES, 0).status(), CUDNN_STATUS_NOT_SUPPORTED)
      << "no knob of the engine";
  Desc config = config_with(CUDNN_KNOB_TYPE_SPLIT_K, 4);
  ASSERT_EQ(config.status(), CUDNN_STATUS_SUCCESS) << config.error();
  std::vector<Desc> places;
  std::vector<cudnnBackendDescriptor_t> raws;
  for (int i = 0; i < CUDNN_KNOB_TYPE_COUNTS; ++i) {
    raws.push_back(places.emplace_back(CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR).raw());
  }
  ASSERT_EQ(cudnnBackendGetAttribute(config.raw(), CUDNN_ATTR_ENGINECFG_KNOB_CHOICES,
                                     CUDNN_TYPE_BACKEND_DESCRIPTOR, CUDNN_KNOB_TYPE_COUNTS, &count,
                                     raws.data()),
            CUDNN_STATUS_SUCCESS);
  int64_t value = -1;
  ASSERT_EQ(count, 1);
  EXPECT_EQ(places[0].Get(CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, &value), CUDNN_STATUS_SUCCESS);
  EXPECT_EQ(value, 4);
  Desc plan = Plan(problem.handle, config);
  Desc pack = Pack(problem.uids(), problem.pointers(), problem.workspace.data());
  ASSERT_EQ(cudnnBackendExecute(problem.handle, plan.raw(), pack.raw()), CUDNN_STATUS_SUCCESS)
      << LastError();
  problem.CheckResult();
}

// A batch norm with one buffer is that of one GPU, on which the buffer lies.
TEST(Flow, ALonePeerOnAnotherDeviceIsRefused) {
  cudnnHandle_t handle = nullptr;
  cudnnCreate(&handle);
  const std::vector<int64_t> stats = {1, 3, 1, 1};
  Desc x = Tensor(1, {2, 3, 1, 1}), y = Tensor(2, {2, 3, 1, 1}), mean = Tensor(3, stats);
  Desc inverse = Tensor(4, stats), epsilon = Tensor(5, {1, 1, 1, 1}, {.by_value = true});
  Desc other = Tensor(7, {2, 12, 1, 1});
  Desc scale = Tensor(8, stats), bias = Tensor(9, stats);
  Desc norm(CUDNN_BACKEND_OPERATION_NORM_FORWARD_DESCRIPTOR);
  norm.Set(CUDNN_ATTR_OPERATION_NORM_FWD_MODE, CUDNN_BATCH_NORM)
      .Set(CUDNN_ATTR_OPERATION_NORM_FWD_PHASE, CUDNN_NORM_FWD_TRAINING)
      .Set(CUDNN_ATTR_OPERATION_NORM_FWD_XDESC, x)
      .Set(CUDNN_ATTR_OPERATION_NORM_FWD_MEAN_DESC, mean)
      .Set(CUDNN_ATTR_OPERATION_NORM_FWD_INV_VARIANCE_DESC, inverse)
      .Set(CUDNN_ATTR_OPERATION_NORM_FWD_SCALE_DESC, scale)
      .Set(CUDNN_ATTR_OPERATION_NORM_FWD_BIAS_DESC, bias)
      .Set(CUDNN_ATTR_OPERATION_NORM_FWD_EPSILON_DESC, epsilon)
      .Set(CUDNN_ATTR_OPERATION_NORM_FWD_PEER_STAT_DESCS, {&other})
      .Set(CUDNN_ATTR_OPERATION_NORM_FWD_YDESC, y)
      .Finalize();
  ASSERT_EQ(norm.status(), CUDNN_STATUS_SUCCESS) << norm.error();
  Desc plan = Plan(handle, Results(Heuristics(Graph(handle, {&norm}), CUDNN_HEUR_MODE_A))[0]);
  ASSERT_EQ(plan.status(), CUDNN_STATUS_SUCCESS) << plan.error();

  std::vector<float> in = {1, 2, 3, 3, 6, 3}, out(6), m(3), i(3), one(3, 1), zero(3), q(24);
  float small = 0;
  alignas(256) std::array<char, kFakeWorkspace> workspace{};
  Desc pack =
      Pack({1, 2, 3, 4, 5, 7, 8, 9},
           {in.data(), out.data(), m.data(), i.data(), &small, q.data(), one.data(), zero.data()},
           workspace.data());
  kiln::api::SetFakeElsewhere(q.data());
  EXPECT_EQ(cudnnBackendExecute(handle, plan.raw(), pack.raw()), CUDNN_STATUS_NOT_SUPPORTED);
  EXPECT_NE(LastError().find("peers' buffer 7 is memory of another GPU"), std::string::npos)
      << LastError();
  kiln::api::SetFakeElsewhere(in.data());  // nobody asks where tensors are
  EXPECT_EQ(cudnnBackendExecute(handle, plan.raw(), pack.raw()), CUDNN_STATUS_SUCCESS)
      << LastError();
  EXPECT_EQ(m, (std::vector<float>{2, 4, 3}));
  kiln::api::SetFakeElsewhere(nullptr);
  cudnnDestroy(handle);
}

TEST(Flow, APlanSurvivesItsJson) {
  ConvBiasRelu problem;
  std::string json =
      Json(Plan(problem.handle, Results(Heuristics(problem.MakeGraph(), CUDNN_HEUR_MODE_A))[0]));
  auto restore = [&](std::string text) {
    Desc plan(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    plan.Set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, problem.handle)
        .Set(CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION,
             std::vector<char>(text.begin(), text.end()))
        .Finalize();
    return plan;
  };
  Desc plan = restore(json);
  ASSERT_EQ(plan.status(), CUDNN_STATUS_SUCCESS) << plan.error();
  EXPECT_EQ(Json(plan), json);
  Desc config(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
  cudnnBackendDescriptor_t raw = config.raw();
  EXPECT_EQ(cudnnBackendGetAttribute(plan.raw(), CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG,
                                     CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, nullptr, &raw),
            CUDNN_STATUS_SUCCESS);
  Desc pack = Pack(problem.uids(), problem.pointers(), problem.workspace.data());
  ASSERT_EQ(cudnnBackendExecute(problem.handle, plan.raw(), pack.raw()), CUDNN_STATUS_SUCCESS)
      << LastError();
  problem.CheckResult();

  EXPECT_EQ(restore("[1, 2").status(), CUDNN_STATUS_BAD_PARAM);
  EXPECT_EQ(restore("{}").status(), CUDNN_STATUS_SERIALIZATION_VERSION_MISMATCH);
  // Every truncation, and every byte damaged, is a status.
  for (size_t i = 0; i < json.size(); i += 7) {
    std::string damaged = json;
    damaged[i] = '}';
    restore(damaged);
    restore(json.substr(0, i));
  }
}

// Rates, by which a board in no table is modelled, are told where they are known. The clock has
// cuDNN's key.
TEST(Flow, ADescribedDeviceKeepsItsRates) {
  const auto described = [](const std::string& text) {
    Desc device(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
    device
        .Set(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, std::vector<char>(text.begin(), text.end()))
        .Finalize();
    EXPECT_EQ(device.status(), CUDNN_STATUS_SUCCESS) << device.error();
    return Json(device, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION);
  };
  const std::string whole = described(R"({"deviceVer": 890, "deviceName": "NVIDIA of next year",
"smClockRateKHz": 1500000, "kilnMemoryBytesPerSecond": 500000000000})");
  EXPECT_NE(whole.find(R"("smClockRateKHz":1500000)"), std::string::npos) << whole;
  EXPECT_NE(whole.find(R"("kilnMemoryBytesPerSecond":500000000000)"), std::string::npos) << whole;
  EXPECT_EQ(described(whole), whole);
  for (const char* odd :
       {"0", "-1", "9223372036854775807", "-9223372036854775808", "1.5", "null"}) {
    const std::string text =
        described(fmt::format(R"({{"deviceVer": 890, "smClockRateKHz": {}}})", odd));
    EXPECT_EQ(text.find("smClockRateKHz"), std::string::npos) << odd << ": " << text;
  }
}

TEST(Flow, WithoutAHandleAPlanIsMadeForADescribedDeviceAndRunsOnAnother) {
  ConvBiasRelu elsewhere(/*with_handle=*/false), problem;
  Desc device(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
  std::string text =
      R"({"deviceVer": 1000, "multiProcessorCount": 148, "deviceName": "NVIDIA B200"})";
  device.Set(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, std::vector<char>(text.begin(), text.end()))
      .Finalize();
  ASSERT_EQ(device.status(), CUDNN_STATUS_SUCCESS) << device.error();
  Desc graph = elsewhere.MakeGraph();
  Desc heur(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  heur.Set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph)
      .Set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_HEUR_MODE_FALLBACK)
      .Set(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, device)
      .Set(CUDNN_ATTR_ENGINEHEUR_SM_COUNT_TARGET, int32_t{100})
      .Finalize();
  ASSERT_EQ(heur.status(), CUDNN_STATUS_SUCCESS) << heur.error();
  std::vector<Desc> configs = Results(heur);
  Desc plan(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
  plan.Set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, configs[0])
      .Set(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, device)
      .Finalize();
  ASSERT_EQ(plan.status(), CUDNN_STATUS_SUCCESS) << plan.error();
  Desc pack = Pack(problem.uids(), problem.pointers(), problem.workspace.data());
  for (int i = 0; i < 2; ++i) {
    std::fill(problem.y.begin(), problem.y.end(), -1.0f);
    ASSERT_EQ(cudnnBackendExecute(problem.handle, plan.raw(), pack.raw()), CUDNN_STATUS_SUCCESS)
        << LastError();
    problem.CheckResult();
  }
}

// In the order of the plan's tensors, whatever the pack's.
TEST(Flow, ACudaGraphGetsThePlansPointersAndThenOthers) {
  ConvBiasRelu problem, other;
  Desc plan = Plan(problem.handle, Results(Heuristics(problem.MakeGraph(), CUDNN_HEUR_MODE_A))[0]);
  Desc pack = Pack(problem.uids(), problem.pointers(), problem.workspace.data());
  kiln::api::FakeCudaGraph graph;
  auto* const raw = reinterpret_cast<cudaGraph_t>(&graph);
  cudnnHandle_t handle = problem.handle;
  ASSERT_EQ(cudnnBackendPopulateCudaGraph(handle, plan.raw(), pack.raw(), raw),
            CUDNN_STATUS_SUCCESS)
      << LastError();
  const std::vector<void*> first = graph.pointers;
  ASSERT_EQ(first.size(), 4u);
  EXPECT_EQ(std::ranges::count(first, problem.x.data()), 1);
  EXPECT_EQ(graph.workspace, problem.workspace.data());
  EXPECT_EQ(cudnnBackendPopulateCudaGraph(handle, plan.raw(), pack.raw(), raw),
            CUDNN_STATUS_BAD_PARAM_CUDA_GRAPH_MISMATCH);

  Desc others = Pack(other.uids(), other.pointers(), other.workspace.data());
  ASSERT_EQ(cudnnBackendUpdateCudaGraph(handle, plan.raw(), others.raw(), raw),
            CUDNN_STATUS_SUCCESS);
  EXPECT_EQ(graph.updates, 1);
  EXPECT_EQ(std::ranges::find(first, problem.x.data()) - first.begin(),
            std::ranges::find(graph.pointers, other.x.data()) - graph.pointers.begin());

  EXPECT_EQ(cudnnBackendPopulateCudaGraph(handle, plan.raw(), pack.raw(), nullptr),
            CUDNN_STATUS_BAD_PARAM_NULL_POINTER);
  EXPECT_EQ(cudnnBackendUpdateCudaGraph(handle, pack.raw(), pack.raw(), raw),
            CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE);
  Desc missing = Pack({1}, {problem.x.data()}, problem.workspace.data());
  EXPECT_EQ(cudnnBackendUpdateCudaGraph(handle, plan.raw(), missing.raw(), raw),
            CUDNN_STATUS_BAD_PARAM);
  EXPECT_EQ(graph.updates, 1);
}

TEST(Flow, ShapesAreOverriddenForOneExecution) {
  cudnnHandle_t handle = nullptr;
  ASSERT_EQ(cudnnCreate(&handle), CUDNN_STATUS_SUCCESS);
  {
    Desc x = Tensor(1, {4, 2}), y = Tensor(2, {4, 2});
    Desc neg = Pointwise(CUDNN_POINTWISE_NEG, x, nullptr, y);
    Desc plan =
        Plan(handle, Results(Heuristics(Graph(handle, {&neg}), CUDNN_HEUR_MODE_FALLBACK))[0]);
    alignas(16) float in[12], out[12] = {};
    for (int i = 0; i < 12; ++i) in[i] = static_cast<float>(i + 1);
    alignas(256) char workspace[kFakeWorkspace];
    std::vector<std::vector<int64_t>> shapes = {{6, 2}, {6, 2}}, strides = {{2, 1}, {2, 1}};
    Desc pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    pack.Set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, std::vector<int64_t>{1, 2})
        .Set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, std::vector<void*>{in, out})
        .Set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, static_cast<void*>(workspace))
        .Set(CUDNN_ATTR_VARIANT_PACK_OVERRIDE_UNIQUE_IDS, std::vector<int64_t>{1, 2});
    EXPECT_EQ(cudnnBackendSetAttribute(pack.raw(), CUDNN_ATTR_VARIANT_PACK_OVERRIDE_SHAPES,
                                       CUDNN_TYPE_VOID_PTR, 1, &shapes),
              CUDNN_STATUS_SUCCESS);
    EXPECT_EQ(cudnnBackendSetAttribute(pack.raw(), CUDNN_ATTR_VARIANT_PACK_OVERRIDE_STRIDES,
                                       CUDNN_TYPE_VOID_PTR, 1, &strides),
              CUDNN_STATUS_SUCCESS);
    pack.Finalize();
    ASSERT_EQ(pack.status(), CUDNN_STATUS_SUCCESS) << pack.error();
    ASSERT_EQ(cudnnBackendExecute(handle, plan.raw(), pack.raw()), CUDNN_STATUS_SUCCESS)
        << LastError();
    for (int i = 0; i < 12; ++i) EXPECT_EQ(out[i], -in[i]);
  }
  cudnnDestroy(handle);
}

TEST(Flow, InPlaceAndBetaReadWhatWasThere) {
  cudnnHandle_t handle = nullptr;
  ASSERT_EQ(cudnnCreate(&handle), CUDNN_STATUS_SUCCESS);
  {
    Desc x = Tensor(1, {8});
    Desc square = Pointwise(CUDNN_POINTWISE_MUL, x, &x, x);
    Desc graph = Graph(handle, {&square});
    ASSERT_EQ(graph.status(), CUDNN_STATUS_SUCCESS) << graph.error();
    Desc plan = Plan(handle, Results(Heuristics(graph, CUDNN_HEUR_MODE_FALLBACK)).at(0));
    alignas(16) float data[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    alignas(256) char workspace[kFakeWorkspace];
    Desc pack = Pack({1}, {data}, workspace);
    ASSERT_EQ(cudnnBackendExecute(handle, plan.raw(), pack.raw()), CUDNN_STATUS_SUCCESS)
        << LastError();
    for (int i = 0; i < 8; ++i) EXPECT_EQ(data[i], static_cast<float>((i + 1) * (i + 1)));
  }
  cudnnDestroy(handle);
}

TEST(Flow, GroupsMayHaveTheirOwnDimension) {
  cudnnHandle_t handle = nullptr;
  ASSERT_EQ(cudnnCreate(&handle), CUDNN_STATUS_SUCCESS);
  {
    // [N, G, C, W]: two groups of one channel, filters of one tap, so y = w[g][k] * x[g].
    Desc x = Tensor(1, {1, 2, 1, 3}), w = Tensor(2, {2, 2, 1, 1}), y = Tensor(3, {1, 2, 2, 3});
    Desc conv = ConvForward(x, w, y, Convolution(1));
    ASSERT_EQ(conv.status(), CUDNN_STATUS_SUCCESS) << conv.error();
    Desc graph = Graph(handle, {&conv});
    ASSERT_EQ(graph.status(), CUDNN_STATUS_SUCCESS) << graph.error();
    Desc plan = Plan(handle, Results(Heuristics(graph, CUDNN_HEUR_MODE_FALLBACK)).at(0));
    alignas(16) float xs[6] = {1, 2, 3, 10, 20, 30}, ws[4] = {1, -1, 2, 3}, ys[12] = {};
    alignas(256) char workspace[kFakeWorkspace];
    Desc pack = Pack({1, 2, 3}, {xs, ws, ys}, workspace);
    ASSERT_EQ(cudnnBackendExecute(handle, plan.raw(), pack.raw()), CUDNN_STATUS_SUCCESS)
        << LastError();
    const float expected[12] = {1, 2, 3, -1, -2, -3, 20, 40, 60, 30, 60, 90};
    for (int i = 0; i < 12; ++i) EXPECT_EQ(ys[i], expected[i]) << i;
  }
  cudnnDestroy(handle);
}

// NCHW with 4 channels together, and beta * y from such memory; dims and strides count vectors.
TEST(Flow, VectorisedLayoutsHoldChannelsTogether) {
  constexpr int kC = 8, kK = 4, kImage = 6;  // a 1x1 convolution
  cudnnHandle_t handle = nullptr;
  ASSERT_EQ(cudnnCreate(&handle), CUDNN_STATUS_SUCCESS);
  {
    const auto vectors = [](int64_t uid, std::vector<int64_t> dims) {
      Desc t(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
      std::vector<int64_t> strides(dims.size(), 1);
      for (size_t i = dims.size() - 1; i > 0; --i) strides[i - 1] = strides[i] * dims[i];
      t.Set(CUDNN_ATTR_TENSOR_UNIQUE_ID, uid)
          .Set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_DATA_INT8)
          .Set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, int64_t{16})
          .Set(CUDNN_ATTR_TENSOR_DIMENSIONS, dims)
          .Set(CUDNN_ATTR_TENSOR_STRIDES, strides)
          .Set(CUDNN_ATTR_TENSOR_VECTOR_COUNT, int64_t{4})
          .Set(CUDNN_ATTR_TENSOR_VECTORIZED_DIMENSION, int64_t{1})
          .Finalize();
      EXPECT_EQ(t.status(), CUDNN_STATUS_SUCCESS) << t.error();
      return t;
    };
    Desc x = vectors(1, {1, kC / 4, 2, 3}), w = vectors(2, {kK, kC / 4, 1, 1}),
         y = vectors(3, {1, kK / 4, 2, 3});
    Desc conv = ConvForward(x, w, y, Convolution(2), 1.0f);
    ASSERT_EQ(conv.status(), CUDNN_STATUS_SUCCESS) << conv.error();
    Desc graph = Graph(handle, {&conv});
    ASSERT_EQ(graph.status(), CUDNN_STATUS_SUCCESS) << graph.error();
    Desc plan = Plan(handle, Results(Heuristics(graph, CUDNN_HEUR_MODE_FALLBACK)).at(0));
    alignas(16) signed char xs[kC * kImage], ws[kK * kC], ys[kK * kImage], before[kK * kImage];
    for (int i = 0; i < kC * kImage; ++i) xs[i] = static_cast<signed char>(i * 7 % 11 - 5);
    for (int i = 0; i < kK * kC; ++i) ws[i] = static_cast<signed char>(i * 5 % 7 - 3);
    for (int i = 0; i < kK * kImage; ++i) before[i] = ys[i] = static_cast<signed char>(i - 10);
    alignas(256) char workspace[kFakeWorkspace];
    Desc pack = Pack({1, 2, 3}, {xs, ws, ys}, workspace);
    ASSERT_EQ(cudnnBackendExecute(handle, plan.raw(), pack.raw()), CUDNN_STATUS_SUCCESS)
        << LastError();
    for (int k = 0; k < kK; ++k) {
      for (int i = 0; i < kImage; ++i) {
        int sum = before[i * 4 + k];
        for (int c = 0; c < kC; ++c) sum += xs[(c / 4 * kImage + i) * 4 + c % 4] * ws[k * kC + c];
        EXPECT_EQ(ys[i * 4 + k], std::clamp(sum, -128, 127)) << k << " " << i;
      }
    }
  }
  cudnnDestroy(handle);
}

TEST(Flow, NarrowElementsAreMovedUnchanged) {
  cudnnHandle_t handle = nullptr;
  ASSERT_EQ(cudnnCreate(&handle), CUDNN_STATUS_SUCCESS);
  for (cudnnDataType_t type :
       {CUDNN_DATA_INT8, CUDNN_DATA_UINT8, CUDNN_DATA_FP8_E4M3, CUDNN_DATA_FP8_E5M2}) {
    Desc x = Tensor(1, {2, 8}, {.type = type}), y = Tensor(2, {16}, {.type = type});
    Desc op(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
    op.Set(CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x)
        .Set(CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y)
        .Finalize();
    Desc graph = Graph(handle, {&op});
    ASSERT_EQ(graph.status(), CUDNN_STATUS_SUCCESS) << graph.error();
    Desc plan = Plan(handle, Results(Heuristics(graph, CUDNN_HEUR_MODE_FALLBACK)).at(0));
    alignas(16) unsigned char in[16], out[16] = {};
    for (int i = 0; i < 16; ++i) in[i] = static_cast<unsigned char>(i * 5 + (i % 2) * 128);
    alignas(256) char workspace[kFakeWorkspace];
    Desc pack = Pack({1, 2}, {in, out}, workspace);
    ASSERT_EQ(cudnnBackendExecute(handle, plan.raw(), pack.raw()), CUDNN_STATUS_SUCCESS)
        << LastError();
    for (int i = 0; i < 16; ++i) EXPECT_EQ(out[i], in[i]) << type << " " << i;
  }
  cudnnDestroy(handle);
}

TEST(Flow, RunsOfHeadsAreReduced) {
  cudnnHandle_t handle = nullptr;
  ASSERT_EQ(cudnnCreate(&handle), CUDNN_STATUS_SUCCESS);
  {
    Desc x = Tensor(1, {1, 6, 2}), y = Tensor(2, {1, 2, 2});
    Desc parameters(CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
    parameters.Set(CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_REDUCE_TENSOR_ADD)
        .Set(CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_DATA_FLOAT)
        .Finalize();
    Desc op(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    op.Set(CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x)
        .Set(CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y)
        .Set(CUDNN_ATTR_OPERATION_REDUCTION_DESC, parameters)
        .Finalize();
    Desc graph = Graph(handle, {&op});
    ASSERT_EQ(graph.status(), CUDNN_STATUS_SUCCESS) << graph.error();
    Desc plan = Plan(handle, Results(Heuristics(graph, CUDNN_HEUR_MODE_FALLBACK)).at(0));
    alignas(16) float xs[12] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, ys[4] = {};
    alignas(256) char workspace[kFakeWorkspace];
    Desc pack = Pack({1, 2}, {xs, ys}, workspace);
    ASSERT_EQ(cudnnBackendExecute(handle, plan.raw(), pack.raw()), CUDNN_STATUS_SUCCESS)
        << LastError();
    const float expected[4] = {9, 12, 27, 30};
    for (int i = 0; i < 4; ++i) EXPECT_EQ(ys[i], expected[i]) << i;
  }
  cudnnDestroy(handle);
}

TEST(Flow, ManyThreadsShareAPlan) {
  ConvBiasRelu problem;
  Desc plan = Plan(problem.handle, Results(Heuristics(problem.MakeGraph(), CUDNN_HEUR_MODE_A))[0]);
  std::vector<std::jthread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      ConvBiasRelu own;
      Desc pack = Pack(own.uids(), own.pointers(), own.workspace.data());
      for (int round = 0; round < 5; ++round) {
        ASSERT_EQ(cudnnBackendExecute(own.handle, plan.raw(), pack.raw()), CUDNN_STATUS_SUCCESS);
      }
      own.CheckResult();
    });
  }
}

#ifdef NDEBUG
// Generous bounds: they catch a lock or an allocation storm, not a slow machine.
TEST(Cost, DescriptorsAndPacksAreCheap) {
  using Clock = std::chrono::steady_clock;
  constexpr int kRounds = 200000;
  auto start = Clock::now();
  for (int i = 0; i < kRounds; ++i) {
    cudnnBackendDescriptor_t raw = nullptr;
    cudnnBackendCreateDescriptor(CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, &raw);
    cudnnBackendDestroyDescriptor(raw);
  }
  double pair = std::chrono::duration<double, std::nano>(Clock::now() - start).count() / kRounds;
  start = Clock::now();
  int64_t uids[4] = {1, 2, 3, 4};
  void* pointers[4] = {uids, uids, uids, uids};
  void* workspace = uids;
  for (int i = 0; i < kRounds; ++i) {
    cudnnBackendDescriptor_t raw = nullptr;
    cudnnBackendCreateDescriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &raw);
    cudnnBackendSetAttribute(raw, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, 4, uids);
    cudnnBackendSetAttribute(raw, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, 4,
                             pointers);
    cudnnBackendSetAttribute(raw, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1,
                             &workspace);
    cudnnBackendFinalize(raw);
    cudnnBackendDestroyDescriptor(raw);
  }
  double pack = std::chrono::duration<double, std::nano>(Clock::now() - start).count() / kRounds;
  std::printf("create and destroy: %.0f ns; a variant pack: %.0f ns\n", pair, pack);
  EXPECT_LT(pair, 1000);
  EXPECT_LT(pack, 5000);
}
#endif  // NDEBUG

}  // namespace
