// Nodes of cudnn-frontend that its Python package does not show, by its C++ headers: resample, rng,
// bn_finalize and dbn_weight, each against loops in f64. frontend_nodes.sh compiles it with the
// headers of the package from PyPI; memory comes from cudaMalloc, so that the same program runs on
// a GPU and, over the stand-in of libcudart, on the CPU device.
//
//   frontend_nodes        prints a line a program; its exit status is the number of those that
//   failed
#define NV_CUDNN_FRONTEND_USE_DYNAMIC_LOADING  // it looks up more of CUDA than is called here
#include <cudnn_frontend.h>
#include <dlfcn.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

namespace cudnn_frontend {
void* cudnn_dlhandle = dlopen("libcudnn.so.9", RTLD_NOW);
}

namespace {

namespace fe = cudnn_frontend;
using fe::graph::Graph;
using fe::graph::Tensor_attributes;
using Tensor = std::shared_ptr<Tensor_attributes>;
using Dims = std::vector<int64_t>;
using Values = std::vector<double>;

void Require(bool holds, const std::string& sentence) {
  if (!holds) throw std::runtime_error(sentence);
}
void Require(fe::error_object status) { Require(status.is_good(), status.get_message()); }

int64_t Count(const Dims& dims) {
  int64_t count = 1;
  for (const int64_t d : dims) count *= d;
  return count;
}

Dims ChannelsLast(const Dims& d) {
  Dims strides(d.size(), 1);
  int64_t step = d[1];
  for (size_t a = d.size() - 1; a >= 2; --a) {
    strides[a] = step;
    step *= d[a];
  }
  strides[0] = step;
  return strides;
}

// The place in memory of element `flat` of a tensor in the order of its extents.
int64_t PlaceOf(int64_t flat, const Dims& dims, const Dims& strides) {
  int64_t place = 0;
  for (size_t a = dims.size(); a-- > 0;) {
    place += flat % dims[a] * strides[a];
    flat /= dims[a];
  }
  return place;
}

// A graph with its tensors' memory. Values are given and compared in the order of extents.
class Program {
 public:
  explicit Program(cudnnHandle_t handle) : handle_(handle) {
    graph_.set_io_data_type(fe::DataType_t::FLOAT)
        .set_intermediate_data_type(fe::DataType_t::FLOAT)
        .set_compute_data_type(fe::DataType_t::FLOAT);
  }
  Program(const Program&) = delete;
  ~Program() {
    for (void* pointer : memory_) cudaFree(pointer);
  }

  Graph& graph() { return graph_; }

  template <class T = float>
  Tensor Input(const std::string& name, const Dims& dims, const Values& values,
               fe::DataType_t type = fe::DataType_t::FLOAT) {
    const Dims strides = ChannelsLast(dims);
    std::vector<T> words(values.size());
    for (size_t i = 0; i < values.size(); ++i)
      words[PlaceOf(static_cast<int64_t>(i), dims, strides)] = static_cast<T>(values[i]);
    Tensor tensor = graph_.tensor(
        Tensor_attributes().set_name(name).set_dim(dims).set_stride(strides).set_data_type(type));
    pack_[tensor] = Allocate(words.data(), words.size() * sizeof(T));
    return tensor;
  }

  Tensor Scalar(float value) { return graph_.tensor(value); }

  // A result of T; `off` is by how much an element may differ.
  template <class T = float>
  void Output(const std::string& name, Tensor tensor, const Dims& dims, Values expected, double off,
              fe::DataType_t type = fe::DataType_t::FLOAT) {
    tensor->set_output(true).set_dim(dims).set_stride(ChannelsLast(dims)).set_data_type(type);
    const std::vector<char> poison(expected.size() * sizeof(T), 0x5A);
    pack_[tensor] = Allocate(poison.data(), poison.size());
    checks_.push_back([=, this] {
      std::vector<T> words(expected.size());
      cudaMemcpy(words.data(), pack_[tensor], words.size() * sizeof(T), cudaMemcpyDeviceToHost);
      const Dims strides = ChannelsLast(dims);
      for (size_t i = 0; i < expected.size(); ++i) {
        const double got =
            static_cast<double>(words[PlaceOf(static_cast<int64_t>(i), dims, strides)]);
        Require(std::fabs(got - expected[i]) <= off, name + "[" + std::to_string(i) + "] is " +
                                                         std::to_string(got) + ", not " +
                                                         std::to_string(expected[i]));
      }
    });
  }

  void Run() {
    Require(graph_.validate());
    Require(graph_.build_operation_graph(handle_));
    Require(graph_.create_execution_plans({fe::HeurMode_t::A, fe::HeurMode_t::FALLBACK}));
    Require(graph_.check_support());
    Require(graph_.build_plans());
    int64_t bytes = 0;
    Require(graph_.get_workspace_size(bytes));
    const std::vector<char> poison(static_cast<size_t>(bytes), 0x77);
    Require(graph_.execute(handle_, pack_, Allocate(poison.data(), poison.size())));
    Require(cudaDeviceSynchronize() == cudaSuccess, "the device reports an error");
    for (const auto& check : checks_) check();
  }

 private:
  void* Allocate(const void* from, size_t bytes) {
    void* pointer = nullptr;
    Require(cudaMalloc(&pointer, std::max<size_t>(bytes, 1)) == cudaSuccess, "no memory");
    memory_.push_back(pointer);
    cudaMemcpy(pointer, from, bytes, cudaMemcpyHostToDevice);
    return pointer;
  }

  cudnnHandle_t handle_;
  Graph graph_;
  std::unordered_map<Tensor, void*> pack_;
  std::vector<void*> memory_;
  std::vector<std::function<void()>> checks_;
};

Values Random(int64_t count, double low, double high, unsigned seed) {
  std::mt19937 engine(seed);
  std::uniform_real_distribution<float> any(static_cast<float>(low), static_cast<float>(high));
  Values values(static_cast<size_t>(count));
  for (double& v : values) v = any(engine);
  return values;
}

// ---- resample: windows of 3x2 in steps of 2x1 over images with one row and column around them

struct Pooled {
  Dims dims;
  Values values, indices;
};

constexpr int64_t kWindow[] = {3, 2}, kStep[] = {2, 1}, kBefore[] = {1, 1}, kAfter[] = {1, 0};

Pooled Pool(const Dims& x, const Values& values, fe::ResampleMode_t mode) {
  Pooled out;
  out.dims = x;
  for (int a = 0; a < 2; ++a)
    out.dims[a + 2] = (x[a + 2] + kBefore[a] + kAfter[a] - kWindow[a]) / kStep[a] + 1;
  for (int64_t plane = 0; plane < x[0] * x[1]; ++plane) {
    for (int64_t p = 0; p < out.dims[2]; ++p) {
      for (int64_t q = 0; q < out.dims[3]; ++q) {
        double best = -INFINITY, sum = 0;
        int64_t at = -1, inside = 0;
        for (int64_t r = 0; r < kWindow[0]; ++r) {
          for (int64_t s = 0; s < kWindow[1]; ++s) {
            const int64_t h = p * kStep[0] - kBefore[0] + r, w = q * kStep[1] - kBefore[1] + s;
            if (h < 0 || h >= x[2] || w < 0 || w >= x[3]) continue;
            const double v = values[static_cast<size_t>((plane * x[2] + h) * x[3] + w)];
            ++inside;
            sum += v;
            if (v > best) {
              best = v;
              at = r * kWindow[1] + s;
            }
          }
        }
        const bool all = mode == fe::ResampleMode_t::AVGPOOL_INCLUDE_PADDING;
        const bool largest = mode == fe::ResampleMode_t::MAXPOOL;
        const double count =
            all ? static_cast<double>(kWindow[0] * kWindow[1]) : static_cast<double>(inside);
        out.values.push_back(largest ? best : sum / count);
        out.indices.push_back(static_cast<double>(at));
      }
    }
  }
  return out;
}

void Resample(Program& program, fe::ResampleMode_t mode, bool with_index) {
  const Dims dims = {2, 8, 9, 7};
  const Values x = Random(Count(dims), -1, 1, 3);
  const Pooled expected = Pool(dims, x, mode);
  const bool largest = mode == fe::ResampleMode_t::MAXPOOL;
  auto attributes =
      fe::graph::Resample_attributes()
          .set_resampling_mode(mode)
          .set_padding_mode(largest ? fe::PaddingMode_t::NEG_INF_PAD : fe::PaddingMode_t::ZERO_PAD)
          .set_window(Dims(kWindow, kWindow + 2))
          .set_stride(Dims(kStep, kStep + 2))
          .set_pre_padding(Dims(kBefore, kBefore + 2))
          .set_post_padding(Dims(kAfter, kAfter + 2))
          .set_generate_index(with_index);
  const auto [y, index] = program.graph().resample(program.Input("x", dims, x), attributes);
  program.Output("y", y, expected.dims, expected.values, largest ? 0 : 1e-6);
  if (with_index)
    program.Output<int8_t>("index", index, expected.dims, expected.indices, 0,
                           fe::DataType_t::INT8);
}

// ---- rng

// Word `place` % 4 of Philox4x32-7's counter {place / 4, offset} under the key seed.
uint32_t Philox(uint64_t place, uint64_t seed, uint64_t offset) {
  uint32_t c[4] = {static_cast<uint32_t>(place >> 2), static_cast<uint32_t>(place >> 34),
                   static_cast<uint32_t>(offset), static_cast<uint32_t>(offset >> 32)};
  uint32_t key[2] = {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)};
  for (int round = 0; round < 7; ++round) {
    const uint64_t a = uint64_t{0xD2511F53} * c[0], b = uint64_t{0xCD9E8D57} * c[2];
    const uint32_t next[4] = {
        static_cast<uint32_t>(b >> 32) ^ c[1] ^ key[0], static_cast<uint32_t>(b),
        static_cast<uint32_t>(a >> 32) ^ c[3] ^ key[1], static_cast<uint32_t>(a)};
    std::copy(next, next + 4, c);
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  return c[place % 4];
}

void Rng(Program& program) {
  const Dims dims = {3, 8, 5, 7}, one = {1, 1, 1, 1};
  const double probability = 0.7;
  const int64_t seed = 987654321, offset = 11;
  const Tensor seed_tensor =
      program.Input<int64_t>("seed", one, {double(seed)}, fe::DataType_t::INT64);
  const Tensor offset_tensor =
      program.Input<int64_t>("offset", one, {double(offset)}, fe::DataType_t::INT64);
  Values expected;
  for (int64_t i = 0; i < Count(dims); ++i)
    expected.push_back((Philox(static_cast<uint64_t>(i) / 2, seed, offset) >> i % 2 * 16 & 0xffff) <
                       float(probability) * 65536.0);
  const Tensor y = program.graph().rng(seed_tensor, offset_tensor,
                                       fe::graph::Rng_attributes()
                                           .set_name("rng")
                                           .set_distribution(fe::RngDistribution_t::BERNOULLI)
                                           .set_bernoulli_probability(probability));
  program.Output("y", y, dims, expected, 0);
}

// ---- batch norm in parts

struct Statistics {
  Values sum, squares, mean, inverse;
};

constexpr float kEpsilon = 1e-3f;

Statistics StatisticsOf(const Dims& dims, const Values& x) {
  const auto channels = static_cast<size_t>(dims[1]),
             plane = static_cast<size_t>(dims[2] * dims[3]);
  Statistics s{Values(channels), Values(channels), Values(channels), Values(channels)};
  for (size_t i = 0; i < x.size(); ++i) {
    s.sum[i / plane % channels] += x[i];
    s.squares[i / plane % channels] += x[i] * x[i];
  }
  const double count = static_cast<double>(x.size() / channels);
  for (size_t c = 0; c < channels; ++c) {
    s.mean[c] = s.sum[c] / count;
    s.inverse[c] = 1 / std::sqrt(s.squares[c] / count - s.mean[c] * s.mean[c] + kEpsilon);
  }
  return s;
}

const Dims kImage = {4, 8, 5, 6}, kChannels = {1, 8, 1, 1};

void BnFinalize(Program& program) {
  const Values x = Random(Count(kImage), -1, 2, 5), scale = Random(8, 0.5, 1.5, 6),
               bias = Random(8, -1, 1, 7), mean = Random(8, -1, 1, 8),
               variance = Random(8, 0.5, 2, 9);
  const Statistics s = StatisticsOf(kImage, x);
  const double count = static_cast<double>(Count(kImage) / 8), momentum = 0.25;
  Tensor old_mean = program.Input("mean", kChannels, mean),
         old_variance = program.Input("variance", kChannels, variance);
  Tensor momentum_tensor = program.Scalar(float(momentum));
  auto attributes = fe::graph::BN_finalize_attributes();
  attributes.set_name("finalize")
      .set_previous_running_stats(old_mean, old_variance, momentum_tensor);
  const Tensor counted = program.graph().tensor(static_cast<int64_t>(count));
  const auto results = program.graph().bn_finalize(
      program.Input("sum", kChannels, s.sum), program.Input("squares", kChannels, s.squares),
      program.Input("scale", kChannels, scale), program.Input("bias", kChannels, bias),
      program.Scalar(kEpsilon), counted, attributes);
  Values eq_scale, eq_bias, next_mean, next_variance;
  for (size_t c = 0; c < 8; ++c) {
    eq_scale.push_back(scale[c] * s.inverse[c]);
    eq_bias.push_back(bias[c] - s.mean[c] * eq_scale[c]);
    const double unbiased = (s.squares[c] / count - s.mean[c] * s.mean[c]) * count / (count - 1);
    next_mean.push_back((1 - momentum) * mean[c] + momentum * s.mean[c]);
    next_variance.push_back((1 - momentum) * variance[c] + momentum * unbiased);
  }
  const Values* const expected[] = {&eq_scale,  &eq_bias,   &s.mean,
                                    &s.inverse, &next_mean, &next_variance};
  for (size_t i = 0; i < results.size(); ++i)
    program.Output("result " + std::to_string(i), results[i], kChannels, *expected[i], 1e-5);
}

// dx = eq_scale_dy dy + eq_scale_x x + eq_bias is batch norm's gradient.
void DbnWeight(Program& program) {
  const Values x = Random(Count(kImage), -1, 2, 11), dy = Random(Count(kImage), -1, 1, 12),
               scale = Random(8, 0.5, 1.5, 13);
  const Statistics s = StatisticsOf(kImage, x);
  Values dscale(8), dbias(8), eq_dy, eq_x, eq_bias;
  for (size_t i = 0; i < x.size(); ++i) {
    const size_t c = i / 30 % 8;
    dscale[c] += dy[i] * (x[i] - s.mean[c]) * s.inverse[c];
    dbias[c] += dy[i];
  }
  const double count = static_cast<double>(x.size() / 8);
  for (size_t c = 0; c < 8; ++c) {
    const double factor = scale[c] * s.inverse[c];
    eq_dy.push_back(factor);
    eq_x.push_back(-factor * s.inverse[c] * dscale[c] / count);
    eq_bias.push_back(-factor * dbias[c] / count - eq_x[c] * s.mean[c]);
  }
  const auto results = program.graph().dbn_weight(
      program.Input("dy", kImage, dy), program.Input("x", kImage, x),
      program.Input("mean", kChannels, s.mean), program.Input("inverse", kChannels, s.inverse),
      program.Input("scale", kChannels, scale), fe::graph::DBN_weight_attributes());
  // In the frontend's order: dscale, dbias, eq_scale_dy, eq_scale_x, eq_bias.
  const Values* const expected[] = {&dscale, &dbias, &eq_dy, &eq_x, &eq_bias};
  for (size_t i = 0; i < results.size(); ++i)
    program.Output("result " + std::to_string(i), results[i], kChannels, *expected[i], 2e-5);
}

struct Row {
  const char* name;
  std::function<void(Program&)> build;
};

const Row kPrograms[] = {
    {"resample_max", [](Program& p) { Resample(p, fe::ResampleMode_t::MAXPOOL, false); }},
    {"resample_max_index", [](Program& p) { Resample(p, fe::ResampleMode_t::MAXPOOL, true); }},
    {"resample_average",
     [](Program& p) { Resample(p, fe::ResampleMode_t::AVGPOOL_EXCLUDE_PADDING, false); }},
    {"resample_average_padded",
     [](Program& p) { Resample(p, fe::ResampleMode_t::AVGPOOL_INCLUDE_PADDING, false); }},
    {"rng", Rng},
    {"bn_finalize", BnFinalize},
    {"dbn_weight", DbnWeight},
};

}  // namespace

int main() {
  cudnnHandle_t handle = nullptr;
  if (cudnnCreate(&handle) != CUDNN_STATUS_SUCCESS) {
    std::printf("no handle\n");
    return 1;
  }
  int failed = 0;
  for (const Row& row : kPrograms) {
    std::string outcome = "ok";
    try {
      Program program(handle);
      row.build(program);
      program.Run();
    } catch (const std::exception& error) {
      outcome = std::string("FAILED: ") + error.what();
      ++failed;
    }
    std::printf("%s: %s\n", row.name, outcome.c_str());
  }
  cudnnDestroy(handle);
  return failed;
}
