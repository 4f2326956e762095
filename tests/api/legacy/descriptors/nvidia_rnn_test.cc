// Descriptors and weight spaces of recurrent networks on ours and on NVIDIA's libcudnn.so.9:
// statuses, values that are read back, sizes and addresses are equal. NVIDIA's looks into no handle
// for these, so that it is given memory of zeros and needs no GPU. Skipped where 9.19 is not
// installed.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <limits>

#include "tests/support/legacy_client.h"
#include "tests/support/nvidia_library.h"

namespace {

using kiln::testing::LegacyClient;

template <class E>
E As(int value) {
  return static_cast<E>(value);
}

struct Network {
  int algo = 0, cell = CUDNN_LSTM, bias = CUDNN_RNN_DOUBLE_BIAS, direction = 0, input_mode = 0,
      type = CUDNN_DATA_FLOAT, precision = CUDNN_DATA_FLOAT, math = 0, input = 3, hidden = 5,
      projected = 5, layers = 1;
  unsigned flags = 0;
};

cudnnStatus_t Set(LegacyClient& c, cudnnRNNDescriptor_t rnn, const Network& n) {
  return KILN_CALL(c, cudnnSetRNNDescriptor_v8, rnn, As<cudnnRNNAlgo_t>(n.algo),
                   As<cudnnRNNMode_t>(n.cell), As<cudnnRNNBiasMode_t>(n.bias),
                   As<cudnnDirectionMode_t>(n.direction), As<cudnnRNNInputMode_t>(n.input_mode),
                   As<cudnnDataType_t>(n.type), As<cudnnDataType_t>(n.precision),
                   As<cudnnMathType_t>(n.math), n.input, n.hidden, n.projected, n.layers,
                   static_cast<cudnnDropoutDescriptor_t>(nullptr), n.flags);
}

void ReadClip(LegacyClient& c, cudnnRNNDescriptor_t rnn) {
  cudnnRNNClipMode_t mode{};
  cudnnNanPropagation_t nan{};
  std::array<double, 2> bounds = {-9, -9};
  KILN_CALL(c, cudnnRNNGetClip_v8, rnn, &mode, &nan, &bounds[0], &bounds[1]);
  c.Note(std::array{static_cast<int>(mode), static_cast<int>(nan)});
  c.Note(bounds);
}

void Read(LegacyClient& c, cudnnRNNDescriptor_t rnn) {
  std::array<int, 12> v;
  v.fill(-9);
  unsigned flags = 99;
  cudnnDropoutDescriptor_t dropout = nullptr;
  KILN_CALL(
      c, cudnnGetRNNDescriptor_v8, rnn, reinterpret_cast<cudnnRNNAlgo_t*>(&v[0]),
      reinterpret_cast<cudnnRNNMode_t*>(&v[1]), reinterpret_cast<cudnnRNNBiasMode_t*>(&v[2]),
      reinterpret_cast<cudnnDirectionMode_t*>(&v[3]), reinterpret_cast<cudnnRNNInputMode_t*>(&v[4]),
      reinterpret_cast<cudnnDataType_t*>(&v[5]), reinterpret_cast<cudnnDataType_t*>(&v[6]),
      reinterpret_cast<cudnnMathType_t*>(&v[7]), &v[8], &v[9], &v[10], &v[11], &dropout, &flags);
  c.Note(v);
  c.Note(std::array{flags});
  ReadClip(c, rnn);
}

// Every tensor of the weight space: its descriptor and where it lies.
void ReadWeights(LegacyClient& c, cudnnHandle_t handle, cudnnRNNDescriptor_t rnn,
                 const Network& n) {
  size_t bytes = 99;
  KILN_CALL(c, cudnnGetRNNWeightSpaceSize, handle, rnn, &bytes);
  c.Note(std::array{bytes});
  constexpr intptr_t kBase = 1 << 20;
  auto matrix = c.New<cudnnTensorDescriptor_t>("Tensor"),
       bias = c.New<cudnnTensorDescriptor_t>("Tensor");
  for (int layer = -1; layer <= n.layers * (n.direction + 1); ++layer) {
    for (int id = -1; id < 10; ++id) {
      void *matrix_at = nullptr, *bias_at = nullptr;
      if (KILN_CALL(c, cudnnGetRNNWeightParams, handle, rnn, layer, bytes,
                    reinterpret_cast<const void*>(kBase), id, matrix, &matrix_at, bias,
                    &bias_at) != CUDNN_STATUS_SUCCESS)
        continue;
      c.Note(
          std::array{reinterpret_cast<intptr_t>(matrix_at), reinterpret_cast<intptr_t>(bias_at)});
      for (cudnnTensorDescriptor_t t : {matrix, bias}) {
        cudnnDataType_t type{};
        int rank = -1;
        std::array<int, 3> dims = {}, strides = {};
        KILN_CALL(c, cudnnGetTensorNdDescriptor, t, 3, &type, &rank, dims.data(), strides.data());
        c.Note(std::array{static_cast<int>(type), rank});
        if (rank > 0) c.Note(dims);
        if (rank > 0) c.Note(strides);
      }
    }
  }
}

class NvidiaRnn : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string path = kiln::testing::NvidiaLibraryPath("");
    if (path.empty()) GTEST_SKIP() << "NVIDIA's libcudnn.so.9 is not installed";
    theirs_ = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    ours_ = dlopen("api/libcudnn.so.9", RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(ours_, nullptr) << dlerror();
    if (theirs_ == nullptr) GTEST_SKIP() << path << " does not load: " << dlerror();
    if (kiln::testing::ProbeVersion(path) / 100 != 919) GTEST_SKIP() << path << " is not 9.19";
    ASSERT_NE(theirs_, ours_) << "one library stands for both";
    LegacyClient client(ours_);
    ASSERT_EQ(KILN_CALL(client, cudnnCreate, &our_handle_), CUDNN_STATUS_SUCCESS);
  }
  void TearDown() override {
    if (our_handle_ == nullptr) return;
    LegacyClient client(ours_);
    KILN_CALL(client, cudnnDestroy, our_handle_);
  }
  template <class F>
  void ExpectEqual(const std::string& name, const F& run) {
    LegacyClient on_theirs(theirs_), on_ours(ours_);
    run(on_theirs, reinterpret_cast<cudnnHandle_t>(zeros_.data()));
    run(on_ours, our_handle_);
    EXPECT_EQ(on_ours.transcript(), on_theirs.transcript()) << name;
  }

  void *theirs_ = nullptr, *ours_ = nullptr;
  cudnnHandle_t our_handle_ = nullptr;
  std::vector<char> zeros_ = std::vector<char>(1 << 20);
};

TEST_F(NvidiaRnn, NetworksAreTakenAndGivenBackAsByNvidias) {
  int Network::* const numbers[] = {&Network::algo,      &Network::cell,   &Network::bias,
                                    &Network::direction, &Network::math,   &Network::input_mode,
                                    &Network::type,      &Network::input,  &Network::hidden,
                                    &Network::projected, &Network::layers, &Network::precision};
  std::vector<Network> networks;
  for (int Network::* const number : numbers) {
    for (int value = -1; value < 12; ++value) {
      // Beside algorithms, cells and biases, whose combinations have rules.
      for (int algo = 0; algo < 4; ++algo) {
        for (const int cell : {CUDNN_LSTM, CUDNN_GRU}) {
          Network n = {.algo = algo, .cell = cell};
          n.*number = value;
          networks.push_back(n);
        }
      }
    }
  }
  for (const int type : {CUDNN_DATA_FLOAT, CUDNN_DATA_DOUBLE, CUDNN_DATA_HALF, CUDNN_DATA_BFLOAT16,
                         CUDNN_DATA_INT8, CUDNN_DATA_INT32}) {
    for (const int precision :
         {CUDNN_DATA_FLOAT, CUDNN_DATA_DOUBLE, CUDNN_DATA_HALF, CUDNN_DATA_BFLOAT16}) {
      for (int algo = 0; algo < 4; ++algo)
        networks.push_back({.algo = algo, .type = type, .precision = precision});
    }
  }
  for (unsigned flags = 0; flags < 5; ++flags) networks.push_back({.flags = flags});
  networks.push_back({.algo = 1, .hidden = 2048, .projected = 2048});
  networks.push_back({.algo = 3, .hidden = 1024, .projected = 1024});
  networks.push_back({.input_mode = CUDNN_SKIP_INPUT, .input = 4});
  for (const Network& n : networks) {
    ExpectEqual("a network", [&](LegacyClient& c, cudnnHandle_t) {
      auto rnn = c.New<cudnnRNNDescriptor_t>("RNN");
      if (Set(c, rnn, n) == CUDNN_STATUS_SUCCESS) Read(c, rnn);
    });
  }
  EXPECT_GT(networks.size(), 1000u);
}

TEST_F(NvidiaRnn, ADescriptorThatWasNotSetAnswersAsNvidias) {
  ExpectEqual("not set", [&](LegacyClient& c, cudnnHandle_t handle) {
    auto rnn = c.New<cudnnRNNDescriptor_t>("RNN");
    size_t bytes = 99;
    KILN_CALL(c, cudnnGetRNNWeightSpaceSize, handle, rnn, &bytes);
    c.Note(std::array{bytes});
    cudnnRNNMode_t mode{};
    KILN_CALL(c, cudnnGetRNNDescriptor_v8, rnn, nullptr, &mode, nullptr, nullptr, nullptr, nullptr,
              nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr);
    ReadClip(c, rnn);
    void* at = nullptr;
    auto matrix = c.New<cudnnTensorDescriptor_t>("Tensor");
    KILN_CALL(c, cudnnGetRNNWeightParams, handle, rnn, 0, size_t{800}, nullptr, 0, matrix, &at,
              nullptr, nullptr);
    auto data = c.New<cudnnRNNDataDescriptor_t>("RNNData");
    std::array<int, 6> v = {-9, -9, -9, -9, -9, -9};
    double fill = -9;
    KILN_CALL(c, cudnnGetRNNDataDescriptor, data, reinterpret_cast<cudnnDataType_t*>(&v[0]),
              reinterpret_cast<cudnnRNNDataLayout_t*>(&v[1]), &v[2], &v[3], &v[4], 0, nullptr,
              static_cast<void*>(&fill));
    c.Note(std::array{v[2], v[3], v[4]});
  });
}

TEST_F(NvidiaRnn, WeightSpacesAreEqualToTheByte) {
  int networks = 0;
  for (int cell = 0; cell < 4; ++cell) {
    for (int bias = 0; bias < 4; ++bias) {
      for (int direction = 0; direction < 2; ++direction) {
        for (int input_mode = 0; input_mode < 2; ++input_mode) {
          for (const int projected : {6, 2}) {
            if (projected != 6 && cell != CUDNN_LSTM) continue;
            for (const int type : {CUDNN_DATA_FLOAT, CUDNN_DATA_HALF}) {
              const Network n = {.cell = cell,
                                 .bias = bias,
                                 .direction = direction,
                                 .input_mode = input_mode,
                                 .type = type,
                                 .input = input_mode == CUDNN_SKIP_INPUT ? 6 : 3,
                                 .hidden = 6,
                                 .projected = projected,
                                 .layers = 1 + (cell + bias) % 3};
              ExpectEqual(
                  "weights of cell " + std::to_string(cell) + ", bias mode " + std::to_string(bias),
                  [&](LegacyClient& c, cudnnHandle_t handle) {
                    auto rnn = c.New<cudnnRNNDescriptor_t>("RNN");
                    Set(c, rnn, n);
                    ReadWeights(c, handle, rnn, n);
                  });
              ++networks;
            }
          }
        }
      }
    }
  }
  EXPECT_EQ(networks, 160);
}

TEST_F(NvidiaRnn, WeightsOutsideTheBufferAndPairsAreRefusedAsByNvidias) {
  ExpectEqual("misuse", [&](LegacyClient& c, cudnnHandle_t handle) {
    auto rnn = c.New<cudnnRNNDescriptor_t>("RNN");
    Set(c, rnn, {});
    auto matrix = c.New<cudnnTensorDescriptor_t>("Tensor"),
         bias = c.New<cudnnTensorDescriptor_t>("Tensor");
    void *matrix_at = nullptr, *bias_at = nullptr;
    const auto ask = [&](size_t bytes, intptr_t base, cudnnTensorDescriptor_t m, void** m_at,
                         cudnnTensorDescriptor_t b, void** b_at) {
      KILN_CALL(c, cudnnGetRNNWeightParams, handle, rnn, 0, bytes,
                reinterpret_cast<const void*>(base), 3, m, m_at, b, b_at);
    };
    for (const size_t bytes : {size_t{0}, size_t{100}, size_t{239}, size_t{240}, size_t{720},
                               size_t{799}, size_t{800}, size_t{900}}) {
      ask(bytes, 4096, matrix, &matrix_at, nullptr, nullptr);
      ask(bytes, 4096, nullptr, nullptr, bias, &bias_at);
    }
    for (intptr_t base = 4096; base < 4104; ++base)
      ask(800, base, matrix, &matrix_at, bias, &bias_at);
    ask(800, 0, matrix, &matrix_at, bias, &bias_at);
    c.Note(std::array{reinterpret_cast<intptr_t>(matrix_at), reinterpret_cast<intptr_t>(bias_at)});
    ask(800, 4096, nullptr, nullptr, nullptr, nullptr);
    ask(800, 4096, nullptr, &matrix_at, bias, &bias_at);
    ask(800, 4096, matrix, &matrix_at, nullptr, &bias_at);
  });
}

TEST_F(NvidiaRnn, DataIsTakenAndGivenBackAsByNvidias) {
  struct Data {
    int type = 0, layout = 0, steps = 4, batch = 3, width = 5;
    std::array<int, 4> lengths = {4, 2, 1, 9};
    int wanted = 3;
    bool has_fill = true;
  };
  std::vector<Data> rows;
  for (int type = -1; type < 12; ++type) rows.push_back({.type = type});
  for (int layout = -1; layout < 5; ++layout) {
    for (const std::array<int, 4>& lengths : {std::array{4, 2, 1, 9},
                                              {4, 4, 4, 4},
                                              {1, 2, 4, 1},
                                              {3, 2, 1, 1},
                                              {4, 2, 0, 1},
                                              {0, 0, 0, 0},
                                              {5, 2, 1, 1},
                                              {4, -1, 1, 1}})
      rows.push_back({.layout = layout, .lengths = lengths});
  }
  for (const int n : {-1, 0}) {
    rows.push_back({.steps = n});
    rows.push_back({.batch = n});
    rows.push_back({.width = n});
  }
  for (int wanted = -1; wanted < 6; ++wanted) rows.push_back({.wanted = wanted});
  rows.push_back({.has_fill = false});
  for (const Data& d : rows) {
    ExpectEqual("data", [&](LegacyClient& c, cudnnHandle_t) {
      auto data = c.New<cudnnRNNDataDescriptor_t>("RNNData");
      float fill = 7.5;
      if (KILN_CALL(c, cudnnSetRNNDataDescriptor, data, As<cudnnDataType_t>(d.type),
                    As<cudnnRNNDataLayout_t>(d.layout), d.steps, d.batch, d.width, d.lengths.data(),
                    static_cast<void*>(d.has_fill ? &fill : nullptr)) != CUDNN_STATUS_SUCCESS)
        return;
      std::array<int, 5> v = {-9, -9, -9, -9, -9};
      std::array<int, 8> lengths;
      lengths.fill(-9);
      std::array<float, 2> filled = {-9, -9};
      KILN_CALL(c, cudnnGetRNNDataDescriptor, data, reinterpret_cast<cudnnDataType_t*>(&v[0]),
                reinterpret_cast<cudnnRNNDataLayout_t*>(&v[1]), &v[2], &v[3], &v[4], d.wanted,
                lengths.data(), static_cast<void*>(filled.data()));
      c.Note(v);
      c.Note(lengths);
      if (d.type == CUDNN_DATA_FLOAT) c.Note(filled);
    });
  }
}

TEST_F(NvidiaRnn, ClippingIsTakenAndGivenBackAsByNvidias) {
  const double nan = std::numeric_limits<double>::quiet_NaN(), inf = HUGE_VAL;
  for (const std::array<double, 2>& bounds :
       {std::array{-0.3, 0.7}, {0.7, -0.3}, {0.0, 0.0}, {nan, 1.0}, {-1.0, nan}, {-inf, inf}}) {
    for (int mode = -1; mode < 3; ++mode) {
      ExpectEqual("clip", [&](LegacyClient& c, cudnnHandle_t) {
        auto rnn = c.New<cudnnRNNDescriptor_t>("RNN");
        KILN_CALL(c, cudnnRNNSetClip_v8, rnn, As<cudnnRNNClipMode_t>(mode),
                  As<cudnnNanPropagation_t>(mode), bounds[0], bounds[1]);
        ReadClip(c, rnn);
        KILN_CALL(c, cudnnRNNSetClip_v9, rnn, As<cudnnRNNClipMode_t>(mode), bounds[0], bounds[1]);
        ReadClip(c, rnn);
        Set(c, rnn, {});
        ReadClip(c, rnn);
        std::array<double, 2> got = {};
        cudnnRNNClipMode_t now{};
        KILN_CALL(c, cudnnRNNGetClip_v9, rnn, &now, &got[0], &got[1]);
        c.Note(got);
      });
    }
  }
}

}  // namespace
