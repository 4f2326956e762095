// cudnnMultiHeadAttn… against plain loops in f64: forward in inference and in training, one step
// after the other, gradients of sequences and of weights, over random layers and named ones.
// KILN_TEST_SEED=… repeats the random ones, KILN_TEST_FILTER=<number> runs one of them.
#include <gtest/gtest.h>

#include <algorithm>
#include <climits>
#include <cmath>
#include <cstdio>
#include <random>

#include "tests/numerics/multi_head_layer.h"
#include "tests/support/runner.h"

namespace kiln::testing {
namespace {

struct Case {
  MultiHead m;
  LayerOptions options;
};

// Errors are small against the largest of a tensor, or against 1, which inputs are as large as:
// gradients may be sums of large terms that cancel. Between calls all is rounded to the type.
double ToleranceOf(cudnnDataType_t type) {
  switch (type) {
    case CUDNN_DATA_DOUBLE:
      return 1e-12;
    case CUDNN_DATA_HALF:
      return 1e-2;
    case CUDNN_DATA_BFLOAT16:
      return 8e-2;
    default:
      return 2e-5;
  }
}

std::string Difference(const std::string& name, const Vector& is, const Vector& should,
                       double tolerance) {
  double largest = 0;
  for (const double x : should) largest = std::max(largest, std::abs(x));
  for (size_t i = 0; i < should.size(); ++i)
    if (!(std::abs(is[i] - should[i]) <= tolerance * (largest + 1)))
      return name + "[" + std::to_string(i) + "] is " + std::to_string(is[i]) + ", not " +
             std::to_string(should[i]) + " (the largest is " + std::to_string(largest) + ")";
  return "";
}

class Machine {
 public:
  Machine() {
    device_ = OpenTestDevice(&error_);
    if (device_ == nullptr) return;
    library_ = dlopen(TestOptions::Get().cudnn.c_str(), RTLD_NOW | RTLD_LOCAL);
    client_ = std::make_unique<LegacyClient>(library_);
    KILN_CALL(*client_, cudnnCreate, &handle_);
    KILN_CALL(*client_, cudnnSetStream, handle_, static_cast<cudaStream_t>(device_->stream()));
  }
  ~Machine() {
    if (handle_ != nullptr) KILN_CALL(*client_, cudnnDestroy, handle_);
  }
  const std::string& error() const { return error_; }
  Device& device() { return *device_; }
  cudnnHandle_t handle() { return handle_; }
  void* library() { return library_; }

 private:
  std::string error_;
  std::unique_ptr<Device> device_;
  void* library_ = nullptr;
  std::unique_ptr<LegacyClient> client_;
  cudnnHandle_t handle_ = nullptr;
};

using Random = std::mt19937_64;

Vector Uniform(Random& random, size_t count, cudnnDataType_t type) {
  std::uniform_real_distribution<double> of(-1, 1);
  Vector values(count);
  for (double& value : values) value = of(random);
  return Rounded(type, std::move(values));
}

MultiHeadData DataOf(const MultiHead& m, cudnnDataType_t type, Random& random) {
  const size_t queries = static_cast<size_t>(m.batch) * m.beam * m.steps,
               keys = static_cast<size_t>(m.batch) * m.keys;
  MultiHeadData data;
  data.q = Uniform(random, queries * m.size[0], type);
  data.k = Uniform(random, keys * m.size[1], type);
  data.v = Uniform(random, keys * m.size[2], type);
  data.residual = Uniform(random, queries * m.OutputSize(), type);
  data.weights = Uniform(random, static_cast<size_t>(PlacesOf(m).end), type);
  return data;
}

// ---- one case

class CaseRun {
 public:
  CaseRun(Machine& machine, const Case& c, uint64_t seed)
      : client_(machine.library()),
        case_(c),
        m_(c.m),
        random_(seed),
        data_(DataOf(c.m, c.options.type, random_)),
        layer_(client_, machine.device(), machine.handle(), c.m, c.options, true),
        tolerance_(ToleranceOf(c.options.type)) {}

  // A sentence where something is wrong.
  std::string Run() {
    if (!layer_.error().empty()) return layer_.error();
    layer_.Write(data_);
    should_ = MultiHeadForward(m_, data_);
    for (const auto part : {&CaseRun::Inference, &CaseRun::Steps, &CaseRun::Training,
                            &CaseRun::Data, &CaseRun::Weights}) {
      const std::string error = (this->*part)();
      if (!error.empty()) return error;
    }
    for (const Sequences* s :
         {&layer_.q, &layer_.k, &layer_.v, &layer_.out, &layer_.dq, &layer_.dk, &layer_.dv})
      if (const std::string error = s->CheckGuards(); !error.empty()) return error;
    return "";
  }

 private:
  std::string Inference() {
    layer_.out.Poison();
    if (!layer_.Forward(-1, false)) return layer_.error();
    return Difference("out", layer_.out.Read(), should_, tolerance_);
  }

  // Steps by themselves, from the last on; all others' rows stay poison. Of many steps some.
  std::string Steps() {
    layer_.out.Poison();
    const int width = m_.OutputSize(), every = std::max(1, m_.steps / 8);
    Vector expected(should_.size(), std::nan(""));
    for (int step = m_.steps - 1; step >= 0; step -= every) {
      if (!layer_.Forward(step, false)) return layer_.error();
      for (size_t i = 0; i < expected.size(); ++i)
        if (static_cast<int>(i) / width % m_.steps == step) expected[i] = should_[i];
      Vector out = layer_.out.Read();
      for (size_t i = 0; i < out.size(); ++i) {
        if (std::isnan(expected[i]) != std::isnan(out[i]))
          return "step " + std::to_string(step) + " wrote other rows than its own";
        if (std::isnan(out[i])) out[i] = should_[i];
      }
      const std::string error = Difference("out by steps", out, should_, tolerance_);
      if (!error.empty()) return error;
    }
    return "";
  }

  std::string Training() {
    layer_.out.Poison();
    if (!layer_.Forward(-1, true)) return layer_.error();
    return Difference("out in training", layer_.out.Read(), should_, tolerance_);
  }

  std::string Data() {
    dout_ = Uniform(random_, should_.size(), case_.options.type);
    layer_.dout.Write(dout_);
    gradients_ = MultiHeadBackward(m_, data_, dout_);
    if (!layer_.BackwardData()) return layer_.error();
    for (const auto& [name, is, should] :
         {std::tuple("dq", &layer_.dq, &gradients_.q), std::tuple("dk", &layer_.dk, &gradients_.k),
          std::tuple("dv", &layer_.dv, &gradients_.v)}) {
      const std::string error = Difference(name, is->Read(), *should, tolerance_);
      if (!error.empty()) return error;
    }
    return "";
  }

  // SET overwrites; ADD adds the same once more.
  std::string Weights() {
    if (!layer_.BackwardWeights(false)) return layer_.error();
    std::string error = Difference("dw", layer_.WeightGradients(), gradients_.weights, tolerance_);
    if (!error.empty()) return error;
    if (!layer_.BackwardWeights(true)) return layer_.error();
    Vector twice = gradients_.weights;
    for (double& value : twice) value *= 2;
    return Difference("dw added", layer_.WeightGradients(), twice, tolerance_);
  }

  LegacyClient client_;
  const Case& case_;
  const MultiHead& m_;
  Random random_;
  const MultiHeadData data_;
  AttentionLayer layer_;
  const double tolerance_;
  Vector should_, dout_;
  MultiHeadGradients gradients_;
};

// ---- random cases

class CaseMaker {
 public:
  explicit CaseMaker(uint64_t seed) : random_(seed) {}

  Case Make() {
    Case c;
    MultiHead& m = c.m;
    m.heads = Pick({1, 1, 2, 3});
    m.batch = Pick({1, 2, 3});
    m.beam = Pick({1, 1, 1, 2, 3});
    m.steps = Pick({1, 2, 3, 5, 8});
    m.keys = Pick({1, 2, 3, 5, 7, 16});
    TakeSizes(m);
    m.biases = Chance(2);
    m.scale = Pick({1, 1, 3}) / 2.0;
    TakeWindows(m);
    TakeLengths(m);
    m.residual = m.size[0] == m.OutputSize() && !Chance(4);
    TakeOptions(c);
    return c;
  }

 private:
  int Pick(std::initializer_list<int> of) { return of.begin()[random_() % of.size()]; }
  bool Chance(int of) { return random_() % static_cast<uint64_t>(of) == 0; }
  int Below(int limit) { return static_cast<int>(random_() % static_cast<uint64_t>(limit)); }

  void TakeSizes(MultiHead& m) {
    for (int& size : m.size) size = Pick({1, 3, 4, 8, 11});
    const int products = Pick({1, 2, 5, 8});
    m.projected = {Chance(3) ? 0 : products, Chance(3) ? 0 : products,
                   Chance(3) ? 0 : Pick({1, 3, 8}), Chance(3) ? 0 : Pick({1, 4, 9})};
    // Both are as wide as each other where they are multiplied.
    if (m.projected[0] == 0 && m.projected[1] > 0) m.size[0] = m.projected[1];
    if (m.projected[1] == 0) m.size[1] = m.Width(0);
    // Half of those that may have a residual.
    if (Chance(2) && m.projected[0] > 0) m.size[0] = m.OutputSize();
  }

  void TakeWindows(MultiHead& m) {
    const int kind = Below(6), shift = Below(4) - 1;
    for (int t = 0; t < m.steps; ++t) {
      m.lo.push_back(kind == 1 ? t - shift : kind == 2 ? Below(m.keys + 1) : 0);
      m.hi.push_back(kind == 0   ? t + 1
                     : kind == 1 ? t + 1 + shift
                     : kind == 2 ? Below(m.keys + 2)
                     : kind == 3 ? m.keys - 1
                                 : INT_MAX);
    }
    if (kind == 4) m.lo[Below(m.steps)] = m.keys;  // one sees nothing
  }

  void TakeLengths(MultiHead& m) {
    const bool is_full = Chance(3);
    for (int i = 0; i < m.batch * m.beam; ++i)
      m.query_lengths.push_back(is_full ? m.steps : Below(m.steps + 1));
    for (int i = 0; i < m.batch; ++i) m.key_lengths.push_back(is_full ? m.keys : Below(m.keys + 1));
  }

  void TakeOptions(Case& c) {
    LayerOptions& o = c.options;
    o.type =
        static_cast<cudnnDataType_t>(Pick({CUDNN_DATA_FLOAT, CUDNN_DATA_DOUBLE, CUDNN_DATA_DOUBLE,
                                           CUDNN_DATA_HALF, CUDNN_DATA_BFLOAT16}));
    o.compute = o.type == CUDNN_DATA_DOUBLE              ? CUDNN_DATA_DOUBLE
                : o.type == CUDNN_DATA_HALF && Chance(2) ? CUDNN_DATA_HALF
                                                         : CUDNN_DATA_FLOAT;
    o.math = o.type == CUDNN_DATA_FLOAT ? CUDNN_FMA_MATH : CUDNN_DEFAULT_MATH;
    o.one_to_one = c.m.beam == 1 && Chance(3);
    std::ranges::shuffle(o.axes, random_);
    o.spare = Chance(2) ? 0 : 2;
  }

  Random random_;
};

std::string TextOf(const Case& c) {
  const auto list = [](const auto& values) {
    std::string text = "[";
    for (const int value : values) text += std::to_string(value) + ",";
    return text + "]";
  };
  const MultiHead& m = c.m;
  return "type " + std::to_string(c.options.type) + " heads " + std::to_string(m.heads) +
         " batch " + std::to_string(m.batch) + " beam " + std::to_string(m.beam) + " steps " +
         std::to_string(m.steps) + " keys " + std::to_string(m.keys) + " sizes " + list(m.size) +
         " projected " + list(m.projected) + (m.biases ? " biases" : "") +
         (m.residual ? " residual" : "") + " scale " + std::to_string(m.scale) + " axes " +
         list(c.options.axes) + " lo " + list(m.lo) + " hi " + list(m.hi) + " lengths " +
         list(m.query_lengths) + list(m.key_lengths) + " spare " + std::to_string(c.options.spare);
}

// Batches of random layers, so that shards of the test share them.
constexpr int kCases = 150, kBatches = 15;
class RandomLayers : public ::testing::TestWithParam<int> {};

TEST_P(RandomLayers, AreWhatTheFormulasSay) {
  Machine machine;
  ASSERT_EQ(machine.error(), "");
  const uint64_t seed = TestOptions::Get().seed;
  const std::string& filter = TestOptions::Get().filter;
  std::printf("KILN_TEST_SEED=%llu\n", static_cast<unsigned long long>(seed));
  for (int i = GetParam(); i < kCases; i += kBatches) {
    if (!filter.empty() && filter != std::to_string(i)) continue;
    const Case c = CaseMaker(seed + static_cast<uint64_t>(i)).Make();
    const std::string error = CaseRun(machine, c, seed + static_cast<uint64_t>(i)).Run();
    EXPECT_EQ(error, "") << i << ": " << TextOf(c);
  }
}

INSTANTIATE_TEST_SUITE_P(Batch, RandomLayers, ::testing::Range(0, kBatches));

// ---- named cases

std::vector<int> Full(int count, int length) {
  return std::vector<int>(static_cast<size_t>(count), length);
}

// Odd sizes, more steps than a launch carries numbers of a window that follows no rule, and
// sequences that end early.
Case LargeCase(cudnnDataType_t type, bool has_rule) {
  Case c;
  c.m = {.heads = 3,
         .batch = 2,
         .beam = has_rule ? 1 : 2,
         .steps = 133,
         .keys = 97,
         .size = {33, 33, 31},
         .projected = {24, 24, 24, 33},
         .biases = true,
         .residual = true,
         .scale = 0.25};
  for (int t = 0; t < c.m.steps; ++t) {
    c.m.lo.push_back(has_rule ? t - 20 : t * 7 % 41);
    c.m.hi.push_back(has_rule ? t + 1 : t * 13 % 120);
  }
  c.m.query_lengths = Full(c.m.batch * c.m.beam, c.m.steps);
  c.m.query_lengths[0] = 71;
  c.m.key_lengths = {97, 50};
  c.options.type = type;
  c.options.compute = type == CUDNN_DATA_DOUBLE ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT;
  return c;
}

TEST(MultiHeadAttention, LargeLayersAreWhatTheFormulasSay) {
  Machine machine;
  ASSERT_EQ(machine.error(), "");
  for (const auto type : {CUDNN_DATA_DOUBLE, CUDNN_DATA_HALF})
    for (const bool has_rule : {true, false}) {
      const Case c = LargeCase(type, has_rule);
      EXPECT_EQ(CaseRun(machine, c, 7).Run(), "") << TextOf(c);
    }
}

// Heads of one element, where GPUs run attention on its engines.
TEST(MultiHeadAttention, HeadsOfOneElementAreWhatTheFormulasSay) {
  Machine machine;
  ASSERT_EQ(machine.error(), "");
  for (const auto type : {CUDNN_DATA_HALF, CUDNN_DATA_BFLOAT16}) {
    Case c;
    c.m = {.heads = 3,
           .batch = 2,
           .steps = 5,
           .keys = 16,
           .size = {9, 4, 11},
           .projected = {1, 1, 1, 9},
           .lo = Full(5, 0),
           .hi = {1, 2, 3, 4, 5},
           .query_lengths = Full(2, 5),
           .key_lengths = {3, 12}};
    c.options.type = type;
    EXPECT_EQ(CaseRun(machine, c, 9).Run(), "") << TextOf(c);
  }
}

// The library's word on each element of a matrix, against the oracle's.
TEST(MultiHeadAttention, WeightsLieWhereTheFunctionSays) {
  Machine machine;
  ASSERT_EQ(machine.error(), "");
  CaseMaker maker(3);
  for (int i = 0; i < 30; ++i) {
    LegacyClient client(machine.library());
    const Case c = maker.Make();
    const AttentionLayer layer(client, machine.device(), machine.handle(), c.m, c.options, false);
    ASSERT_EQ(layer.error(), "");
    const WeightPlaces places = PlacesOf(c.m);
    const int element = oracle::Row(ElementOf(c.options.type)).bytes;
    auto* const base = reinterpret_cast<uint8_t*>(uintptr_t{1} << 20);
    for (int kind = 0; kind < 8; ++kind) {
      auto tensor = client.New<cudnnTensorDescriptor_t>("Tensor");
      void* address = base;
      ASSERT_EQ(KILN_CALL(client, cudnnGetMultiHeadAttnWeights, machine.handle(), layer.desc(),
                          static_cast<cudnnMultiHeadAttnWeightKind_t>(kind), layer.weight_bytes(),
                          static_cast<const void*>(base), tensor, &address),
                CUDNN_STATUS_SUCCESS);
      const int what = kind % 4;
      const int64_t place = kind < 4 ? places.matrix[what] : places.bias[what];
      if (place < 0) {
        EXPECT_EQ(address, nullptr);
        continue;
      }
      cudnnDataType_t type;
      int rank = 0;
      std::array<int, 3> dims, strides;
      KILN_CALL(client, cudnnGetTensorNdDescriptor, tensor, 3, &type, &rank, dims.data(),
                strides.data());
      ASSERT_EQ(rank, 3);
      const int64_t first = (static_cast<uint8_t*>(address) - base) / element;
      for (int h = 0; h < dims[0]; ++h)
        for (int row = 0; row < dims[1]; ++row)
          for (int column = 0; column < dims[2]; ++column)
            ASSERT_EQ(first + h * strides[0] + row * strides[1] + column * strides[2],
                      place + (kind < 4 ? WeightPlaces::Of(c.m, what, h, row, column)
                                        : h * c.m.projected[what] + row))
                << TextOf(c) << " kind " << kind;
    }
  }
}

// The oracle's gradients are the slopes of its forward direction.
TEST(MultiHeadAttention, TheOraclesGradientsAreItsSlopes) {
  constexpr double kStep = 1e-6;
  CaseMaker maker(11);
  for (int i = 0; i < 20; ++i) {
    Case c = maker.Make();
    Random random(static_cast<uint64_t>(i));
    MultiHeadData data = DataOf(c.m, CUDNN_DATA_DOUBLE, random);
    const Vector dout = Uniform(random, MultiHeadForward(c.m, data).size(), CUDNN_DATA_DOUBLE);
    const MultiHeadGradients gradients = MultiHeadBackward(c.m, data, dout);
    const auto loss = [&] {
      const Vector out = MultiHeadForward(c.m, data);
      double sum = 0;
      for (size_t j = 0; j < out.size(); ++j) sum += out[j] * dout[j];
      return sum;
    };
    // Gradients of an output's padding count for nothing; only its residual is there.
    for (const auto& [values, slopes] :
         {std::pair(&data.q, &gradients.q), std::pair(&data.k, &gradients.k),
          std::pair(&data.v, &gradients.v), std::pair(&data.weights, &gradients.weights)})
      for (size_t j = 0; j < values->size(); ++j) {
        const double at = (*values)[j];
        (*values)[j] = at + kStep;
        const double above = loss();
        (*values)[j] = at - kStep;
        const double below = loss();
        (*values)[j] = at;
        ASSERT_NEAR((above - below) / (2 * kStep), (*slopes)[j], 1e-6) << TextOf(c);
      }
  }
}

// ---- dropout

constexpr unsigned long long kSeed = 77;

// A layer with dropout, its descriptor, and what it must give where the mask is known.
class DropoutRun {
 public:
  DropoutRun(Machine& machine, bool of_weights, bool of_output)
      : client_(machine.library()), machine_(machine) {
    m_ = {.heads = 2,
          .batch = 2,
          .beam = 2,
          .steps = 3,
          .keys = 6,
          .size = {4, 4, 6},
          .projected = {5, 5, 0, of_output ? 7 : 0},
          .biases = true,
          .lo = Full(3, 0),
          .hi = Full(3, INT_MAX),
          .query_lengths = Full(4, 3),
          .key_lengths = Full(2, 6)};
    dropout_ = client_.New<cudnnDropoutDescriptor_t>("Dropout");
    KILN_CALL(client_, cudnnDropoutGetStatesSize, machine.handle(), &state_bytes_);
    states_ = std::make_unique<Buffer>(machine.device(), state_bytes_);
    options_.type = options_.compute = CUDNN_DATA_DOUBLE;
    if (of_weights) options_.attn_dropout = dropout_;
    if (of_output) options_.post_dropout = dropout_;
    Seed();
    layer_ = std::make_unique<AttentionLayer>(client_, machine.device(), machine.handle(), m_,
                                              options_, true);
  }

  void Seed() {
    KILN_CALL(client_, cudnnSetDropoutDescriptor, dropout_, machine_.handle(), kDropout,
              static_cast<void*>(states_->data()), state_bytes_, kSeed);
    machine_.device().Synchronize();
  }
  MultiHead& m() { return m_; }
  AttentionLayer& layer() { return *layer_; }
  Vector Forward(const MultiHeadData& data, bool trains) {
    layer_->Write(data);
    EXPECT_TRUE(layer_->Forward(-1, trains)) << layer_->error();
    return layer_->out.Read();
  }

  static constexpr float kDropout = 0.375f;  // what is kept grows by 1.6

 private:
  LegacyClient client_;
  Machine& machine_;
  MultiHead m_;
  LayerOptions options_;
  cudnnDropoutDescriptor_t dropout_ = nullptr;
  size_t state_bytes_ = 0;
  std::unique_ptr<Buffer> states_;
  std::unique_ptr<AttentionLayer> layer_;
};

// Factors are 0 and 1.6, as many of each as chance makes.
void ExpectMask(const Vector& factors) {
  size_t dropped = 0;
  for (const double factor : factors) {
    EXPECT_TRUE(std::abs(factor) < 1e-12 || std::abs(factor - 1.6) < 1e-12) << factor;
    dropped += std::abs(factor) < 1e-12;
  }
  const auto n = static_cast<double>(factors.size());
  const double p = DropoutRun::kDropout;
  EXPECT_NEAR(static_cast<double>(dropped), n * p, 4 * std::sqrt(n * p * (1 - p)));
}

// Both directions by the mask that was read off, from the seed on.
void ExpectByFormula(DropoutRun& run, Random& random) {
  const MultiHeadData data = DataOf(run.m(), CUDNN_DATA_DOUBLE, random);
  run.Seed();
  EXPECT_EQ(Difference("out", run.Forward(data, true), MultiHeadForward(run.m(), data), 1e-12), "");
  const Vector dout = Uniform(random, run.layer().out.Read().size(), CUDNN_DATA_DOUBLE);
  run.layer().dout.Write(dout);
  const MultiHeadGradients gradients = MultiHeadBackward(run.m(), data, dout);
  ASSERT_TRUE(run.layer().BackwardData()) << run.layer().error();
  EXPECT_EQ(Difference("dq", run.layer().dq.Read(), gradients.q, 1e-12), "");
  EXPECT_EQ(Difference("dk", run.layer().dk.Read(), gradients.k, 1e-12), "");
  EXPECT_EQ(Difference("dv", run.layer().dv.Read(), gradients.v, 1e-12), "");
  ASSERT_TRUE(run.layer().BackwardWeights(false)) << run.layer().error();
  EXPECT_EQ(Difference("dw", run.layer().WeightGradients(), gradients.weights, 1e-12), "");
  // Inference drops nothing, and another call draws anew.
  const Vector dropped = run.Forward(data, true), whole = run.Forward(data, false);
  EXPECT_NE(Difference("out", dropped, MultiHeadForward(run.m(), data), 1e-12), "");
  run.m().weight_factor = nullptr;
  run.m().output_factor = nullptr;
  EXPECT_EQ(Difference("out", whole, MultiHeadForward(run.m(), data), 1e-12), "");
}

// Equal scores, and values that are the unit vectors: an output is a row of factors.
TEST(MultiHeadAttention, DropsWeightsAndGradientsAlike) {
  Machine machine;
  ASSERT_EQ(machine.error(), "");
  DropoutRun run(machine, true, false);
  ASSERT_EQ(run.layer().error(), "");
  MultiHead& m = run.m();
  Random random(5);
  MultiHeadData data = DataOf(m, CUDNN_DATA_DOUBLE, random);
  std::ranges::fill(data.weights, 0);
  for (size_t i = 0; i < data.v.size(); ++i)
    data.v[i] = i / m.size[2] % m.keys == i % m.size[2] ? m.keys : 0;
  const Vector factors = run.Forward(data, true);
  ExpectMask(factors);
  m.weight_factor = [=, &m](int b, int head, int beam, int t, int s) {
    return factors[(((static_cast<size_t>(b) * m.beam + beam) * m.steps + t) * m.heads + head) *
                       m.keys +
                   s];
  };
  ExpectByFormula(run, random);
}

// Weights of 0 and an output's bias of 1: the output is the factors.
TEST(MultiHeadAttention, DropsOutputsAndGradientsAlike) {
  Machine machine;
  ASSERT_EQ(machine.error(), "");
  DropoutRun run(machine, false, true);
  ASSERT_EQ(run.layer().error(), "");
  MultiHead& m = run.m();
  Random random(6);
  MultiHeadData data = DataOf(m, CUDNN_DATA_DOUBLE, random);
  std::ranges::fill(data.weights, 0);
  for (int o = 0; o < m.projected[3]; ++o) data.weights[PlacesOf(m).bias[3] + o] = 1;
  const Vector factors = run.Forward(data, true);
  ExpectMask(factors);
  m.output_factor = [=, &m](int b, int beam, int t, int element) {
    return factors[((static_cast<size_t>(b) * m.beam + beam) * m.steps + t) * m.OutputSize() +
                   element];
  };
  ExpectByFormula(run, random);
}

// One state for both: the same from the same seed on, another mask for each.
TEST(MultiHeadAttention, OneStateServesBothDropouts) {
  Machine machine;
  ASSERT_EQ(machine.error(), "");
  DropoutRun run(machine, true, true);
  ASSERT_EQ(run.layer().error(), "");
  Random random(7);
  const MultiHeadData data = DataOf(run.m(), CUDNN_DATA_DOUBLE, random);
  const Vector first = run.Forward(data, true), second = run.Forward(data, true);
  EXPECT_NE(first, second);
  run.Seed();
  EXPECT_EQ(run.Forward(data, true), first);
  EXPECT_EQ(run.Forward(data, true), second);
}

}  // namespace
}  // namespace kiln::testing
