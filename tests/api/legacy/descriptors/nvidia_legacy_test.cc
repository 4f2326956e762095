// Descriptors of the legacy API on ours and on NVIDIA's libcudnn.so.9: statuses and values that are
// read back must be equal, or the row says why ours differs; a row that gives a reason and does not
// differ fails too. Skipped where NVIDIA's library is not installed.
//
// Not here: NULL in place of arrays and of results, which is null_arguments_test's, and what a
// descriptor holds that was not set, which there is what the memory held before.
#include <gtest/gtest.h>

#include <initializer_list>

#include "tests/support/legacy_client.h"
#include "tests/support/nvidia_library.h"

namespace {

using Client = kiln::testing::LegacyClient;
using Ints = std::vector<int>;

struct Row {
  std::string name;
  std::function<void(Client&)> run;
  const char* why_ours_differs = nullptr;
};

template <class E>
E As(int value) {
  return static_cast<E>(value);
}

template <size_t kCount>
std::array<int*, kCount> Places(std::array<int, kCount>& values) {
  std::array<int*, kCount> places;
  for (size_t i = 0; i < kCount; ++i) places[i] = &values[i];
  return places;
}

// ---- tensors

void ReadTensor(Client& c, cudnnTensorDescriptor_t t) {
  int rank = -1;
  cudnnDataType_t type{};
  std::array<int, 8> dims, strides;
  dims.fill(-9);
  strides.fill(-9);
  KILN_CALL(c, cudnnGetTensorNdDescriptor, t, 8, &type, &rank, dims.data(), strides.data());
  c.Note(std::array{static_cast<int>(type), rank});
  c.Note(dims);
  c.Note(strides);
  size_t bytes = 0;
  KILN_CALL(c, cudnnGetTensorSizeInBytes, t, &bytes);
  c.Note(std::array{bytes});
}

Row Tensor4d(int format, int type, std::array<int, 4> d, const char* why = nullptr) {
  std::string name = "tensor4d_" + std::to_string(format) + "_" + std::to_string(type);
  for (const int n : d) name += "_" + std::to_string(n);
  return {
      name,
      [=](Client& c) {
        auto t = c.New<cudnnTensorDescriptor_t>("Tensor");
        if (KILN_CALL(c, cudnnSetTensor4dDescriptor, t, As<cudnnTensorFormat_t>(format),
                      As<cudnnDataType_t>(type), d[0], d[1], d[2], d[3]) == CUDNN_STATUS_SUCCESS)
          ReadTensor(c, t);
      },
      why};
}

Row TensorEx(const std::string& name, int type, std::array<int, 4> d, std::array<int, 4> s,
             const char* why = nullptr) {
  return {"tensor4dex_" + name,
          [=](Client& c) {
            auto t = c.New<cudnnTensorDescriptor_t>("Tensor");
            if (KILN_CALL(c, cudnnSetTensor4dDescriptorEx, t, As<cudnnDataType_t>(type), d[0], d[1],
                          d[2], d[3], s[0], s[1], s[2], s[3]) == CUDNN_STATUS_SUCCESS)
              ReadTensor(c, t);
          },
          why};
}

Row TensorNd(const std::string& name, int rank, Ints dims, Ints strides,
             const char* why = nullptr) {
  return {"tensornd_" + name,
          [=](Client& c) {
            auto t = c.New<cudnnTensorDescriptor_t>("Tensor");
            if (KILN_CALL(c, cudnnSetTensorNdDescriptor, t, CUDNN_DATA_HALF, rank, dims.data(),
                          strides.data()) == CUDNN_STATUS_SUCCESS)
              ReadTensor(c, t);
          },
          why};
}

Row TensorNdEx(const std::string& name, int format, int type, int rank, Ints dims,
               const char* why = nullptr) {
  return {"tensorndex_" + name,
          [=](Client& c) {
            auto t = c.New<cudnnTensorDescriptor_t>("Tensor");
            if (KILN_CALL(c, cudnnSetTensorNdDescriptorEx, t, As<cudnnTensorFormat_t>(format),
                          As<cudnnDataType_t>(type), rank, dims.data()) == CUDNN_STATUS_SUCCESS)
              ReadTensor(c, t);
          },
          why};
}

std::vector<Row> TensorRows() {
  constexpr const char* kNegative = "the reference has a negative stride refused";
  std::vector<Row> rows;
  for (int type = -1; type < 22; ++type) rows.push_back(Tensor4d(0, type, {2, 8, 4, 5}));
  for (int format = -1; format < 4; ++format) {
    if (format == 0) continue;
    for (const int type : {0, 3, 5, 7, 8}) rows.push_back(Tensor4d(format, type, {2, 64, 4, 5}));
  }
  for (const std::array<int, 4>& d : {std::array{0, 1, 1, 1},
                                      {-1, 1, 1, 1},
                                      {2, 3, 0, 4},
                                      {65536, 65536, 1, 1},
                                      {32768, 65536, 1, 1},
                                      {32768, 65535, 1, 1},
                                      {2, 30, 4, 4}}) {
    rows.push_back(Tensor4d(0, 0, d));
    rows.push_back(Tensor4d(2, 8, d));
  }
  const std::array<int, 4> d = {2, 3, 4, 5};
  rows.push_back(TensorEx("packed", 2, d, {60, 20, 5, 1}));
  rows.push_back(TensorEx("gaps", 0, d, {400, 100, 10, 2}));
  rows.push_back(TensorEx("overlapping", 0, d, {1, 1, 1, 1}));
  rows.push_back(TensorEx("zero", 0, d, {0, 0, 0, 0}));
  rows.push_back(TensorEx("negative", 0, d, {-1, 1, 1, 1}, kNegative));
  rows.push_back(TensorEx("long", 0, d, {1 << 30, 1 << 29, 1, 1}));
  rows.push_back(TensorEx("vectors", 5, {2, 8, 4, 5}, {40, 20, 5, 1}));
  const Ints twos(9, 2), steps = {256, 128, 64, 32, 16, 8, 4, 2, 1}, many(9, 3);
  for (const int rank : {-1, 0, 1, 2, 3, 4, 5, 8, 9})
    rows.push_back(TensorNd(std::to_string(rank), rank, twos, steps));
  rows.push_back(TensorNd("no_extent", 4, {0, 1, 1, 1}, {1, 1, 1, 1}));
  rows.push_back(TensorNd("no_stride", 4, {2, 1, 1, 1}, {0, 1, 1, 1}));
  rows.push_back(TensorNd("negative", 4, {2, 1, 1, 1}, {-1, 1, 1, 1}, kNegative));
  for (const int format : {0, 1}) {
    for (const int rank : {-1, 0, 1, 3, 4, 5, 8, 9})
      rows.push_back(
          TensorNdEx(std::to_string(format) + "_" + std::to_string(rank), format, 0, rank, many));
  }
  rows.push_back(TensorNdEx("vectors", 2, 5, 5, {2, 8, 4, 5, 6}));
  rows.push_back(TensorNdEx("no_vectors", 2, 0, 4, {2, 8, 4, 5},
                            "NCHW_VECT_C of single floats, refused as SetTensor4dDescriptor does"));
  rows.push_back({"get_fewer", [](Client& c) {
                    auto t = c.New<cudnnTensorDescriptor_t>("Tensor");
                    const Ints dims = {2, 3, 4, 5, 6};
                    KILN_CALL(c, cudnnSetTensorNdDescriptorEx, t, CUDNN_TENSOR_NCHW,
                              CUDNN_DATA_FLOAT, 5, dims.data());
                    for (const int wanted : {-1, 0, 3, 5, 9}) {
                      int rank = -1;
                      cudnnDataType_t type{};
                      std::array<int, 9> got = {}, gaps = {};
                      KILN_CALL(c, cudnnGetTensorNdDescriptor, t, wanted, &type, &rank, got.data(),
                                gaps.data());
                      c.Note(std::array{rank});
                      c.Note(got);
                      c.Note(gaps);
                    }
                    cudnnDataType_t type{};
                    std::array<int, 8> v;
                    auto p = Places(v);
                    KILN_CALL(c, cudnnGetTensor4dDescriptor, t, &type, p[0], p[1], p[2], p[3], p[4],
                              p[5], p[6], p[7]);
                    c.Note(v);
                  }});
  return rows;
}

void Derive(Client& c, int type, const Ints& dims, int mode, int groups) {
  auto x = c.New<cudnnTensorDescriptor_t>("Tensor"), y = c.New<cudnnTensorDescriptor_t>("Tensor"),
       z = c.New<cudnnTensorDescriptor_t>("Tensor");
  KILN_CALL(c, cudnnSetTensorNdDescriptorEx, x, CUDNN_TENSOR_NHWC, As<cudnnDataType_t>(type),
            static_cast<int>(dims.size()), dims.data());
  if (KILN_CALL(c, cudnnDeriveBNTensorDescriptor, y, x, As<cudnnBatchNormMode_t>(mode)) ==
      CUDNN_STATUS_SUCCESS)
    ReadTensor(c, y);
  if (KILN_CALL(c, cudnnDeriveNormTensorDescriptor, y, z, x, As<cudnnNormMode_t>(mode), groups) ==
      CUDNN_STATUS_SUCCESS) {
    ReadTensor(c, y);
    ReadTensor(c, z);
  }
}

std::vector<Row> DeriveRows() {
  std::vector<Row> rows;
  for (const int type : {0, 1, 2, 3, 9}) {
    for (int mode = -1; mode < 4; ++mode)
      rows.push_back({"derive_" + std::to_string(type) + "_" + std::to_string(mode),
                      [=](Client& c) { Derive(c, type, {2, 3, 5, 7}, mode, 1); }});
  }
  for (const Ints& dims : {Ints{2, 3, 4}, {2, 3, 4, 5, 6}, {2, 3, 4, 5, 6, 7}})
    rows.push_back({"derive_rank_" + std::to_string(dims.size()),
                    [=](Client& c) { Derive(c, 2, dims, 1, 1); }});
  for (const int groups : {0, 2})
    rows.push_back({"derive_groups_" + std::to_string(groups),
                    [=](Client& c) { Derive(c, 2, {2, 3, 4, 5}, 1, groups); }});
  return rows;
}

// ---- filters

Row Filter(const std::string& name, int type, int format, Ints dims, int rank,
           const char* why = nullptr) {
  return {
      "filter_" + name,
      [=](Client& c) {
        auto w = c.New<cudnnFilterDescriptor_t>("Filter");
        if (KILN_CALL(c, cudnnSetFilterNdDescriptor, w, As<cudnnDataType_t>(type),
                      As<cudnnTensorFormat_t>(format), rank, dims.data()) != CUDNN_STATUS_SUCCESS)
          return;
        cudnnDataType_t t{};
        cudnnTensorFormat_t f{};
        std::array<int, 5> v = {};
        std::array<int, 8> got = {};
        KILN_CALL(c, cudnnGetFilterNdDescriptor, w, rank, &t, &f, &v[0], got.data());
        KILN_CALL(c, cudnnGetFilter4dDescriptor, w, &t, &f, &v[1], &v[2], &v[3], &v[4]);
        size_t bytes = 0;
        KILN_CALL(c, cudnnGetFilterSizeInBytes, w, &bytes);
        c.Note(std::array{static_cast<int>(t), static_cast<int>(f)});
        c.Note(v);
        c.Note(got);
        c.Note(std::array{bytes});
      },
      why};
}

std::vector<Row> FilterRows() {
  std::vector<Row> rows;
  const Ints dims = {4, 64, 3, 3}, many(9, 2);
  for (int format = -1; format < 4; ++format) {
    for (const int type : {-1, 0, 3, 5, 6, 7, 8, 9, 10}) {
      const bool miscounted = format == CUDNN_TENSOR_NCHW_VECT_C && type == CUDNN_DATA_INT8x32;
      rows.push_back(Filter(std::to_string(format) + "_" + std::to_string(type), type, format, dims,
                            4, miscounted ? "9.19 reads back an eighth of the channels" : nullptr));
    }
  }
  for (const int rank : {-1, 0, 1, 2, 3, 4, 5, 8, 9})
    rows.push_back(Filter("rank_" + std::to_string(rank), 0, 1, many, rank));
  rows.push_back(Filter("no_extent", 0, 0, {4, 0, 3, 3}, 4));
  rows.push_back(Filter("no_vectors", 8, 2, {4, 33, 3, 3}, 4,
                        "33 channels are no whole vectors of 32, refused as a tensor's are"));
  rows.push_back({"filter4d", [](Client& c) {
                    auto w = c.New<cudnnFilterDescriptor_t>("Filter");
                    for (const int k : {-1, 0, 4})
                      KILN_CALL(c, cudnnSetFilter4dDescriptor, w, CUDNN_DATA_HALF,
                                CUDNN_TENSOR_NHWC, k, 8, 3, 3);
                    cudnnDataType_t t{};
                    cudnnTensorFormat_t f{};
                    int rank = -1;
                    std::array<int, 8> got = {};
                    for (const int wanted : {-1, 0, 3})
                      KILN_CALL(c, cudnnGetFilterNdDescriptor, w, wanted, &t, &f, &rank,
                                got.data());
                    c.Note(std::array{static_cast<int>(t), static_cast<int>(f), rank});
                    c.Note(got);
                  }});
  return rows;
}

// ---- windows

void SetTensor(Client& c, cudnnTensorDescriptor_t t, const Ints& dims) {
  KILN_CALL(c, cudnnSetTensorNdDescriptorEx, t, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT,
            static_cast<int>(dims.size()), dims.data());
}

void Pooling(Client& c, int mode, int nan, int rank, const Ints& window, const Ints& padding,
             const Ints& stride, const Ints& x) {
  auto p = c.New<cudnnPoolingDescriptor_t>("Pooling");
  auto t = c.New<cudnnTensorDescriptor_t>("Tensor");
  SetTensor(c, t, x);
  if (KILN_CALL(c, cudnnSetPoolingNdDescriptor, p, As<cudnnPoolingMode_t>(mode),
                As<cudnnNanPropagation_t>(nan), rank, window.data(), padding.data(),
                stride.data()) != CUDNN_STATUS_SUCCESS)
    return;
  for (const int wanted : {0, 1, 6, 7}) {
    cudnnPoolingMode_t m{};
    cudnnNanPropagation_t n{};
    int spatial = -1;
    std::array<int, 8> w = {}, q = {}, s = {};
    KILN_CALL(c, cudnnGetPoolingNdDescriptor, p, wanted, &m, &n, &spatial, w.data(), q.data(),
              s.data());
    c.Note(std::array{static_cast<int>(m), static_cast<int>(n), spatial});
    c.Note(w);
    c.Note(q);
    c.Note(s);
  }
  for (const size_t count : {x.size() - 1, x.size(), x.size() + 1}) {
    std::array<int, 9> out = {};
    if (KILN_CALL(c, cudnnGetPoolingNdForwardOutputDim, p, t, static_cast<int>(count),
                  out.data()) == CUDNN_STATUS_SUCCESS)
      c.Note(out);
  }
  std::array<int, 4> out = {};
  if (KILN_CALL(c, cudnnGetPooling2dForwardOutputDim, p, t, &out[0], &out[1], &out[2], &out[3]) ==
      CUDNN_STATUS_SUCCESS)
    c.Note(out);
}

std::vector<Row> PoolingRows() {
  std::vector<Row> rows;
  const Ints x = {2, 8, 7, 9};
  const auto add = [&](const std::string& name, int mode, int nan, int rank, const Ints& w,
                       const Ints& p, const Ints& s, const Ints& tensor) {
    rows.push_back(
        {"pooling_" + name, [=](Client& c) { Pooling(c, mode, nan, rank, w, p, s, tensor); }});
  };
  for (int mode = -1; mode < 5; ++mode) {
    for (int nan = -1; nan < 3; ++nan)
      add("mode_" + std::to_string(mode) + "_" + std::to_string(nan), mode, nan, 2, {3, 2}, {1, 0},
          {2, 1}, x);
  }
  for (const int rank : {-1, 0, 1, 2, 3, 6, 7, 8})
    add("rank_" + std::to_string(rank), 0, 0, rank, Ints(8, 3), Ints(8, 1), Ints(8, 2), x);
  add("3d", 1, 0, 3, {3, 3, 3}, {1, 1, 1}, {2, 2, 2}, {2, 8, 7, 9, 11});
  add("no_window", 0, 0, 2, {0, 2}, {1, 0}, {2, 1}, x);
  add("no_stride", 0, 0, 2, {3, 2}, {1, 0}, {0, 1}, x);
  add("negative_padding", 0, 0, 2, {3, 2}, {-1, 0}, {1, 1}, x);
  add("much_padding", 0, 0, 2, {3, 3}, {5, 5}, {2, 2}, x);
  add("does_not_fit", 0, 0, 2, {9, 20}, {0, 0}, {1, 1}, x);
  rows.push_back({"pooling_2d", [](Client& c) {
                    auto p = c.New<cudnnPoolingDescriptor_t>("Pooling");
                    for (const int window : {-1, 0, 3})
                      KILN_CALL(c, cudnnSetPooling2dDescriptor, p, CUDNN_POOLING_MAX,
                                CUDNN_PROPAGATE_NAN, window, 2, 1, 0, 2, 1);
                    cudnnPoolingMode_t m{};
                    cudnnNanPropagation_t n{};
                    std::array<int, 6> v = {};
                    KILN_CALL(c, cudnnGetPooling2dDescriptor, p, &m, &n, &v[0], &v[1], &v[2], &v[3],
                              &v[4], &v[5]);
                    c.Note(v);
                  }});
  return rows;
}

struct Conv {
  int rank = 2, mode = 1, type = 0, groups = 1;
  Ints padding = {1, 1}, stride = {2, 1}, dilation = {1, 2};
  Ints x = {2, 8, 9, 9}, w = {6, 8, 3, 3};
};

void Convolution(Client& c, const Conv& v) {
  auto conv = c.New<cudnnConvolutionDescriptor_t>("Convolution");
  auto x = c.New<cudnnTensorDescriptor_t>("Tensor");
  auto w = c.New<cudnnFilterDescriptor_t>("Filter");
  SetTensor(c, x, v.x);
  KILN_CALL(c, cudnnSetFilterNdDescriptor, w, CUDNN_DATA_FLOAT, CUDNN_TENSOR_NCHW,
            static_cast<int>(v.w.size()), v.w.data());
  if (KILN_CALL(c, cudnnSetConvolutionNdDescriptor, conv, v.rank, v.padding.data(), v.stride.data(),
                v.dilation.data(), As<cudnnConvolutionMode_t>(v.mode),
                As<cudnnDataType_t>(v.type)) != CUDNN_STATUS_SUCCESS)
    return;
  KILN_CALL(c, cudnnSetConvolutionGroupCount, conv, v.groups);
  for (const int wanted : {0, 1, 6, 7}) {
    cudnnConvolutionMode_t mode{};
    cudnnDataType_t type{};
    int spatial = -1;
    std::array<int, 8> p = {}, s = {}, d = {};
    KILN_CALL(c, cudnnGetConvolutionNdDescriptor, conv, wanted, &spatial, p.data(), s.data(),
              d.data(), &mode, &type);
    c.Note(std::array{static_cast<int>(mode), static_cast<int>(type), spatial});
    c.Note(p);
    c.Note(s);
    c.Note(d);
  }
  for (const size_t count : {v.x.size() - 1, v.x.size(), v.x.size() + 1}) {
    std::array<int, 9> out = {};
    if (KILN_CALL(c, cudnnGetConvolutionNdForwardOutputDim, conv, x, w, static_cast<int>(count),
                  out.data()) == CUDNN_STATUS_SUCCESS)
      c.Note(out);
  }
  std::array<int, 4> out = {};
  if (KILN_CALL(c, cudnnGetConvolution2dForwardOutputDim, conv, x, w, &out[0], &out[1], &out[2],
                &out[3]) == CUDNN_STATUS_SUCCESS)
    c.Note(out);
}

std::vector<Row> ConvolutionRows() {
  std::vector<Row> rows;
  const auto add = [&](const std::string& name, const Conv& v) {
    rows.push_back({"conv_" + name, [=](Client& c) { Convolution(c, v); }});
  };
  for (int mode = -1; mode < 3; ++mode) add("mode_" + std::to_string(mode), {.mode = mode});
  for (int type = -1; type < 16; ++type) add("type_" + std::to_string(type), {.type = type});
  for (const int rank : {-1, 0, 1, 2, 6, 7, 8})
    add("rank_" + std::to_string(rank),
        {.rank = rank, .padding = Ints(8, 1), .stride = Ints(8, 2), .dilation = Ints(8, 1)});
  add("negative_padding", {.padding = {-1, 0}});
  add("no_stride", {.stride = {0, 1}});
  add("no_dilation", {.dilation = {1, 0}});
  for (const int groups : {-1, 0, 2, 3, 4}) {
    for (const int channels : {2, 4, 8})
      add("groups_" + std::to_string(groups) + "_" + std::to_string(channels),
          {.groups = groups, .w = {6, channels, 3, 3}});
  }
  add("does_not_fit", {.w = {6, 8, 12, 3}});
  add("fits_once", {.w = {6, 8, 11, 3}});
  add("filter_rank", {.w = {6, 8, 3, 3, 3}});
  add("3d", {.rank = 3,
             .padding = {1, 1, 1},
             .stride = {2, 2, 2},
             .dilation = {1, 1, 1},
             .x = {2, 8, 9, 9, 9},
             .w = {6, 8, 3, 3, 3}});
  rows.push_back({"conv_settings", [](Client& c) {
                    auto conv = c.New<cudnnConvolutionDescriptor_t>("Convolution");
                    const auto note = [&] {
                      cudnnMathType_t math{};
                      cudnnReorderType_t reorder{};
                      int groups = -1;
                      KILN_CALL(c, cudnnGetConvolutionMathType, conv, &math);
                      KILN_CALL(c, cudnnGetConvolutionReorderType, conv, &reorder);
                      KILN_CALL(c, cudnnGetConvolutionGroupCount, conv, &groups);
                      c.Note(std::array{static_cast<int>(math), static_cast<int>(reorder), groups});
                    };
                    note();
                    for (int v = -1; v < 5; ++v) {
                      KILN_CALL(c, cudnnSetConvolutionMathType, conv, As<cudnnMathType_t>(v));
                      KILN_CALL(c, cudnnSetConvolutionReorderType, conv, As<cudnnReorderType_t>(v));
                      KILN_CALL(c, cudnnSetConvolutionGroupCount, conv, v);
                      note();
                    }
                    for (const int stride : {0, 2})
                      KILN_CALL(c, cudnnSetConvolution2dDescriptor, conv, 1, 0, stride, 1, 1, 2,
                                CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT);
                    note();
                    std::array<int, 6> v = {};
                    cudnnConvolutionMode_t mode{};
                    cudnnDataType_t type{};
                    KILN_CALL(c, cudnnGetConvolution2dDescriptor, conv, &v[0], &v[1], &v[2], &v[3],
                              &v[4], &v[5], &mode, &type);
                    c.Note(v);
                  }});
  return rows;
}

// ---- modes

Row Activation(int mode, int nan, double coefficient) {
  return {"activation_" + std::to_string(mode) + "_" + std::to_string(nan), [=](Client& c) {
            auto a = c.New<cudnnActivationDescriptor_t>("Activation");
            if (KILN_CALL(c, cudnnSetActivationDescriptor, a, As<cudnnActivationMode_t>(mode),
                          As<cudnnNanPropagation_t>(nan), coefficient) != CUDNN_STATUS_SUCCESS)
              return;
            cudnnActivationMode_t m{};
            cudnnNanPropagation_t n{};
            std::array<double, 3> v = {};
            KILN_CALL(c, cudnnGetActivationDescriptor, a, &m, &n, &v[0]);
            KILN_CALL(c, cudnnGetActivationDescriptorSwishBeta, a, &v[1]);
            KILN_CALL(c, cudnnSetActivationDescriptorSwishBeta, a, 0.25);
            KILN_CALL(c, cudnnSetActivationDescriptor, a, m, n, 1.0);
            KILN_CALL(c, cudnnGetActivationDescriptorSwishBeta, a, &v[2]);
            c.Note(std::array{static_cast<int>(m), static_cast<int>(n)});
            c.Note(v);
          }};
}

Row Lrn(const std::string& name, unsigned window, double alpha, double beta, double k) {
  return {"lrn_" + name, [=](Client& c) {
            auto lrn = c.New<cudnnLRNDescriptor_t>("LRN");
            KILN_CALL(c, cudnnSetLRNDescriptor, lrn, window, alpha, beta, k);
            unsigned n = 0;
            std::array<double, 3> v = {};
            KILN_CALL(c, cudnnGetLRNDescriptor, lrn, &n, &v[0], &v[1], &v[2]);
            c.Note(std::array{n});
            c.Note(v);
          }};
}

Row OpTensor(int op, int type, int nan) {
  return {"optensor_" + std::to_string(op) + "_" + std::to_string(type) + "_" + std::to_string(nan),
          [=](Client& c) {
            auto o = c.New<cudnnOpTensorDescriptor_t>("OpTensor");
            if (KILN_CALL(c, cudnnSetOpTensorDescriptor, o, As<cudnnOpTensorOp_t>(op),
                          As<cudnnDataType_t>(type),
                          As<cudnnNanPropagation_t>(nan)) != CUDNN_STATUS_SUCCESS)
              return;
            cudnnOpTensorOp_t got{};
            cudnnDataType_t t{};
            cudnnNanPropagation_t n{};
            KILN_CALL(c, cudnnGetOpTensorDescriptor, o, &got, &t, &n);
            c.Note(std::array{static_cast<int>(got), static_cast<int>(t), static_cast<int>(n)});
          }};
}

Row Reduce(int op, int type, int nan, int indices, int index_type) {
  std::string name = "reduce";
  for (const int v : {op, type, nan, indices, index_type}) name += "_" + std::to_string(v);
  return {name, [=](Client& c) {
            auto r = c.New<cudnnReduceTensorDescriptor_t>("ReduceTensor");
            if (KILN_CALL(c, cudnnSetReduceTensorDescriptor, r, As<cudnnReduceTensorOp_t>(op),
                          As<cudnnDataType_t>(type), As<cudnnNanPropagation_t>(nan),
                          As<cudnnReduceTensorIndices_t>(indices),
                          As<cudnnIndicesType_t>(index_type)) != CUDNN_STATUS_SUCCESS)
              return;
            cudnnReduceTensorOp_t o{};
            cudnnDataType_t t{};
            cudnnNanPropagation_t n{};
            cudnnReduceTensorIndices_t i{};
            cudnnIndicesType_t it{};
            KILN_CALL(c, cudnnGetReduceTensorDescriptor, r, &o, &t, &n, &i, &it);
            c.Note(std::array{static_cast<int>(o), static_cast<int>(t), static_cast<int>(n),
                              static_cast<int>(i), static_cast<int>(it)});
          }};
}

Row SpatialTransformer(const std::string& name, int sampler, int type, int rank,
                       const char* why = nullptr) {
  return {"spatial_transformer_" + name,
          [=](Client& c) {
            auto s = c.New<cudnnSpatialTransformerDescriptor_t>("SpatialTransformer");
            const Ints dims(9, 2);
            KILN_CALL(c, cudnnSetSpatialTransformerNdDescriptor, s, As<cudnnSamplerType_t>(sampler),
                      As<cudnnDataType_t>(type), rank, dims.data());
          },
          why};
}

std::vector<Row> ModeRows() {
  std::vector<Row> rows;
  for (int mode = -1; mode < 8; ++mode) {
    for (int nan = -1; nan < 3; ++nan) rows.push_back(Activation(mode, nan, 2.5));
  }
  rows.push_back(Lrn("default", 5, 1e-4, 0.75, 2));
  for (const unsigned n : {0u, 1u, 16u, 17u}) rows.push_back(Lrn(std::to_string(n), n, 1, 1, 1));
  rows.push_back(Lrn("alpha", 5, -1, 1, 1));
  for (const double v : {-1.0, 0.001, 0.01}) rows.push_back(Lrn("beta", 5, 1, v, 1));
  for (const double v : {0.0, 1e-6, 1e-5}) rows.push_back(Lrn("k", 5, 1, 1, v));
  for (int op = -1; op < 8; ++op) rows.push_back(OpTensor(op, 0, 1));
  for (int type = -1; type < 16; ++type) rows.push_back(OpTensor(1, type, 0));
  for (int nan = -1; nan < 3; ++nan) rows.push_back(OpTensor(2, 0, nan));
  for (int op = -1; op < 11; ++op) rows.push_back(Reduce(op, 0, 1, 1, 0));
  for (int type = -1; type < 16; ++type) rows.push_back(Reduce(0, type, 0, 0, 0));
  for (int v = -1; v < 5; ++v) {
    rows.push_back(Reduce(3, 0, v, 0, 0));
    rows.push_back(Reduce(3, 0, 0, v, 0));
    rows.push_back(Reduce(3, 0, 0, 1, v));
  }
  for (int v = -1; v < 2; ++v) rows.push_back(SpatialTransformer("sampler", v, 0, 4));
  for (int v = -1; v < 12; ++v) rows.push_back(SpatialTransformer("type", 0, v, 4));
  for (const int rank : {0, 3, 4, 5, 8})
    rows.push_back(SpatialTransformer(std::to_string(rank), 0, 0, rank));
  for (const int rank : {-1, 9})
    rows.push_back(SpatialTransformer(std::to_string(rank), 0, 0, rank,
                                      "no tensor has so many dims; 9.19 does not look"));
  return rows;
}

struct Transform {
  unsigned rank = 4;
  int format = 0, direction = 0;
  Ints before = Ints(9, 0), after = Ints(9, 0);
  std::vector<unsigned> fold = std::vector<unsigned>(9, 0);
  Ints x = {2, 18, 4, 6};
  int type = 0;
};

Row TransformRow(const std::string& name, const Transform& v, const char* why = nullptr) {
  return {"transform_" + name,
          [=](Client& c) {
            auto t = c.New<cudnnTensorTransformDescriptor_t>("TensorTransform");
            auto x = c.New<cudnnTensorDescriptor_t>("Tensor"),
                 y = c.New<cudnnTensorDescriptor_t>("Tensor");
            if (KILN_CALL(c, cudnnSetTensorTransformDescriptor, t, v.rank,
                          As<cudnnTensorFormat_t>(v.format), v.before.data(), v.after.data(),
                          v.fold.data(),
                          As<cudnnFoldingDirection_t>(v.direction)) != CUDNN_STATUS_SUCCESS)
              return;
            for (const unsigned wanted : {0u, 3u, v.rank}) {
              cudnnTensorFormat_t format{};
              cudnnFoldingDirection_t direction{};
              std::array<int, 8> before = {}, after = {};
              std::array<unsigned, 8> fold = {};
              KILN_CALL(c, cudnnGetTensorTransformDescriptor, t, wanted, &format, before.data(),
                        after.data(), fold.data(), &direction);
              c.Note(std::array{static_cast<int>(format), static_cast<int>(direction)});
              c.Note(before);
              c.Note(after);
              c.Note(fold);
            }
            KILN_CALL(c, cudnnSetTensorNdDescriptorEx, x, CUDNN_TENSOR_NCHW,
                      As<cudnnDataType_t>(v.type), static_cast<int>(v.x.size()), v.x.data());
            size_t bytes = 0;
            if (KILN_CALL(c, cudnnInitTransformDest, t, x, y, &bytes) == CUDNN_STATUS_SUCCESS)
              ReadTensor(c, y);
            c.Note(std::array{bytes});
          },
          why};
}

std::vector<Row> TransformRows() {
  std::vector<Row> rows;
  rows.push_back(TransformRow("plain", {}));
  rows.push_back(TransformRow("nhwc", {.format = 1}));
  rows.push_back(TransformRow("f16", {.format = 1, .type = CUDNN_DATA_HALF}));
  rows.push_back(TransformRow("pad", {.before = {0, 1, 2, 3}, .after = {0, 0, 1, 0}}));
  rows.push_back(TransformRow("crop", {.before = {0, -1, 0, 0}, .after = {0, 0, -1, 0}}));
  rows.push_back(TransformRow("crop_all", {.before = {-2, 0, 0, 0}}));
  rows.push_back(TransformRow("fold", {.fold = {2, 3}}));
  rows.push_back(TransformRow("fold_by_one", {.fold = {1, 0}}));
  rows.push_back(
      TransformRow("fold_padded", {.before = {0, 0, 1, 1}, .after = {0, 0, 0, 1}, .fold = {2, 3}}));
  rows.push_back(TransformRow("fold_rest", {.fold = {3, 4}}));
  rows.push_back(TransformRow("unfold", {.direction = 1, .fold = {2, 3}}));
  rows.push_back(TransformRow("unfold_padded", {.format = 1,
                                                .direction = 1,
                                                .before = {0, 0, 1, 1},
                                                .after = {0, 0, 0, 1},
                                                .fold = {2, 3}}));
  rows.push_back(TransformRow("unfold_rest", {.direction = 1, .fold = {2, 3}, .x = {2, 17, 4, 6}},
                              "17 channels are no blocks of 2x3 places; 9.19 drops the rest"));
  rows.push_back(TransformRow("3d", {.rank = 5, .fold = {2, 3, 1}, .x = {2, 3, 4, 6, 2}}));
  rows.push_back(TransformRow("rank_of_x", {.rank = 5, .x = {2, 3, 4, 6}},
                              "the reference has a wrong number of dims as BAD_PARAM"));
  for (const unsigned rank : {0u, 1u, 9u})
    rows.push_back(TransformRow(std::to_string(rank), {.rank = rank}));
  rows.push_back(TransformRow("2", {.rank = 2}, "the reference wants more than two dims"));
  rows.push_back(TransformRow("format_3", {.format = 3}));
  rows.push_back(TransformRow("format_2", {.format = 2}, "the reference knows NCHW and NHWC"));
  rows.push_back(TransformRow("direction", {.direction = 2},
                              "the reference has an invalid direction as BAD_PARAM"));
  return rows;
}

// ---- packs of fused operations

// Asks which labels an operation has, and what is read back of each.
void ConstantPack(Client& c, int op) {
  cudnnFusedOpsConstParamPack_t pack = nullptr;
  if (KILN_CALL(c, cudnnCreateFusedOpsConstParamPack, &pack, As<cudnnFusedOps_t>(op)) !=
      CUDNN_STATUS_SUCCESS)
    return;
  for (int i = -1; i < 40; ++i) {
    const auto label = As<cudnnFusedOpsConstParamLabel_t>(i);
    int is_null = -1;
    std::array<int, 1024> value = {};
    KILN_CALL(c, cudnnSetFusedOpsConstParamPackAttribute, pack, label,
              static_cast<const void*>(nullptr));
    KILN_CALL(c, cudnnGetFusedOpsConstParamPackAttribute, pack, label,
              static_cast<void*>(value.data()), &is_null);
    c.Note(std::array{is_null, value[0]});
  }
  KILN_CALL(c, cudnnDestroyFusedOpsConstParamPack, pack);
}

void VariantPack(Client& c, int op) {
  cudnnFusedOpsVariantParamPack_t pack = nullptr;
  if (KILN_CALL(c, cudnnCreateFusedOpsVariantParamPack, &pack, As<cudnnFusedOps_t>(op)) !=
      CUDNN_STATUS_SUCCESS)
    return;
  int64_t five = 5;
  for (int i = -1; i < 105; ++i) {
    const auto label = As<cudnnFusedOpsVariantParamLabel_t>(i);
    int64_t value = -1;
    KILN_CALL(c, cudnnSetFusedOpsVariantParamPackAttribute, pack, label, static_cast<void*>(&five));
    KILN_CALL(c, cudnnGetFusedOpsVariantParamPackAttribute, pack, label,
              static_cast<void*>(&value));
    c.Note(std::array{value == reinterpret_cast<intptr_t>(&five) ? int64_t{-2} : value});
  }
  KILN_CALL(c, cudnnDestroyFusedOpsVariantParamPack, pack);
}

std::vector<Row> FusedRows() {
  std::vector<Row> rows;
  for (int op = -1; op < 9; ++op) {
    rows.push_back({"constant_pack_" + std::to_string(op), [=](Client& c) { ConstantPack(c, op); },
                    op == CUDNN_FUSED_CONV_SCALE_BIAS_ADD_ACTIVATION
                        ? "9.19 sets what it does not give back"
                        : nullptr});
    rows.push_back({"variant_pack_" + std::to_string(op), [=](Client& c) { VariantPack(c, op); },
                    op == CUDNN_FUSED_BN_FINALIZE_STATISTICS_INFERENCE
                        ? "9.19 sets what it does not give back"
                        : nullptr});
  }
  rows.push_back({"numbers_of_packs", [](Client& c) {
                    cudnnFusedOpsConstParamPack_t pack = nullptr;
                    KILN_CALL(c, cudnnCreateFusedOpsConstParamPack, &pack,
                              CUDNN_FUSED_SCALE_BIAS_ACTIVATION_CONV_BNSTATS);
                    for (const auto label : {CUDNN_PARAM_XDATA_PLACEHOLDER, CUDNN_PARAM_BN_MODE}) {
                      for (int value = -1; value < 8; ++value) {
                        int got = -9, is_null = -9;
                        KILN_CALL(c, cudnnSetFusedOpsConstParamPackAttribute, pack, label,
                                  static_cast<const void*>(&value));
                        KILN_CALL(c, cudnnGetFusedOpsConstParamPackAttribute, pack, label,
                                  static_cast<void*>(&got), &is_null);
                        c.Note(std::array{got, is_null});
                      }
                    }
                    KILN_CALL(c, cudnnDestroyFusedOpsConstParamPack, pack);
                  }});
  return rows;
}

TEST(NvidiaLegacy, DescriptorsAgreeOrTheReasonIsKnown) {
  const std::string path = kiln::testing::NvidiaLibraryPath("");
  if (path.empty()) GTEST_SKIP() << "NVIDIA's libcudnn.so.9 is not installed";
  void* const theirs = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  void* const ours = dlopen("api/libcudnn.so.9", RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(ours, nullptr) << dlerror();
  if (theirs == nullptr) GTEST_SKIP() << path << " does not load: " << dlerror();
  if (kiln::testing::ProbeVersion(path) / 100 != 919) GTEST_SKIP() << path << " is not 9.19";
  ASSERT_NE(theirs, ours) << "one library stands for both";
  size_t rows = 0;
  for (const auto& list : {TensorRows(), DeriveRows(), FilterRows(), PoolingRows(),
                           ConvolutionRows(), ModeRows(), TransformRows(), FusedRows()}) {
    for (const Row& row : list) {
      SCOPED_TRACE(row.name);
      Client on_theirs(theirs), on_ours(ours);
      row.run(on_theirs);
      row.run(on_ours);
      if (row.why_ours_differs == nullptr) {
        EXPECT_EQ(on_ours.transcript(), on_theirs.transcript());
      } else {
        EXPECT_NE(on_ours.transcript(), on_theirs.transcript())
            << "a reason is given, and there is no difference: " << row.why_ours_differs;
      }
      ++rows;
    }
  }
  EXPECT_GT(rows, 300u);
}

}  // namespace
