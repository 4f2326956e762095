// Calls that the reference has as errors: ours answer as it says, and so does NVIDIA's 9.19 but for
// those that are marked: it looks at less.
#include <algorithm>
#include <string_view>

#include "tests/numerics/legacy_cases.h"

namespace kiln::testing {
namespace {

using oracle::Dims;

// By the thousand, as the statuses of 9 are.
enum class Answer : uint8_t { kSuccess = 0, kBadParam = 2, kNotSupported = 3 };

// Tensors and numbers of a call; each case changes one thing.
struct Arguments {
  const LegacyContext& c;
  const float one = 1, zero = 0;
  LegacyTensor x = c.Tensor({}, {2, 3, 4, 6}, 1), y = c.Tensor({}, {2, 3, 4, 6}, 2),
               dy = c.Tensor({}, {2, 3, 4, 6}, 3), dx = c.Tensor({}, {2, 3, 4, 6}, 4),
               more = c.Tensor({}, {2, 3, 4, 6}, 5),
               nhwc = c.Tensor({CUDNN_DATA_FLOAT, Layout::kNhwc}, {2, 3, 4, 6}, 6),
               wide = c.Tensor({}, {2, 3, 4, 7}, 7),
               half = c.Tensor({CUDNN_DATA_HALF}, {2, 3, 4, 6}, 8),
               bytes = c.Tensor({CUDNN_DATA_INT8}, {2, 3, 4, 6}, 9),
               volume = c.Tensor({}, {2, 3, 4, 6, 2}, 10),
               volume_nhwc = c.Tensor({CUDNN_DATA_FLOAT, Layout::kNhwc}, {2, 3, 4, 6, 2}, 11),
               six = c.Tensor({}, {2, 3, 4, 6, 2, 2}, 12), flat = c.Tensor({}, {2, 3, 4}, 13),
               parameters = c.Tensor({}, {1, 3, 1, 1}, 14), other = c.Tensor({}, {1, 3, 1, 1}, 15),
               small = c.Tensor({}, {2, 3, 2, 3}, 16);
};

using Make = std::function<cudnnStatus_t(Arguments&)>;

// Misuses that 9.19 takes, or answers with another of the two.
constexpr std::string_view kNvidiaDiffers[] = {"softmax_forward_bytes",
                                               "pooling_backward_spatial_dims",
                                               "lrn_forward_mode",
                                               "lrn_backward_mode",
                                               "lrn_backward_no_y",
                                               "lrn_forward_type",
                                               "lrn_forward_dims",
                                               "lrn_forward_six",
                                               "lrn_backward_six",
                                               "lrn_backward_volume_not_packed",
                                               "lrn_forward_in_place",
                                               "lrn_backward_in_place",
                                               "divisive_forward_mode",
                                               "divisive_backward_mode",
                                               "batch_norm_forward_one_running",
                                               "sampler_forward_dims",
                                               "sampler_forward_type"};

void Add(std::vector<LegacyCase>& cases, const std::string& name, Answer answer, Make make) {
  cases.push_back({"misuse/" + name,
                   [=](const LegacyContext& c) -> std::string {
                     Arguments a{.c = c};
                     const cudnnStatus_t status = make(a);
                     c.device.Synchronize();
                     if (status / 1000 == static_cast<int>(answer)) return "";
                     return "status " + std::to_string(status) + ", not of the " +
                            std::to_string(static_cast<int>(answer)) + "000s";
                   },
                   std::ranges::find(kNvidiaDiffers, name) != std::end(kNvidiaDiffers)});
}

template <class E>
E As(int value) {
  return static_cast<E>(value);
}

// ---- softmax

struct Softmax {
  int algorithm = 1, mode = 0;
  LegacyTensor Arguments::*x = &Arguments::x, Arguments::*dy = &Arguments::dy,
               Arguments::*y = &Arguments::y;
};

void AddSoftmax(std::vector<LegacyCase>& cases) {
  const auto forward = [&](const char* name, Answer answer, Softmax s) {
    Add(cases, std::string("softmax_forward_") + name, answer, [=](Arguments& a) {
      return KILN_CALL(a.c.client, cudnnSoftmaxForward, a.c.handle,
                       As<cudnnSoftmaxAlgorithm_t>(s.algorithm), As<cudnnSoftmaxMode_t>(s.mode),
                       static_cast<const void*>(&a.one), (a.*s.x).desc(), (a.*s.x).data(),
                       static_cast<const void*>(&a.zero), (a.*s.y).desc(), (a.*s.y).data());
    });
  };
  const auto backward = [&](const char* name, Answer answer, Softmax s) {
    Add(cases, std::string("softmax_backward_") + name, answer, [=](Arguments& a) {
      return KILN_CALL(a.c.client, cudnnSoftmaxBackward, a.c.handle,
                       As<cudnnSoftmaxAlgorithm_t>(s.algorithm), As<cudnnSoftmaxMode_t>(s.mode),
                       static_cast<const void*>(&a.one), (a.*s.x).desc(), (a.*s.x).data(),
                       (a.*s.dy).desc(), (a.*s.dy).data(), static_cast<const void*>(&a.zero),
                       (a.*s.y).desc(), (a.*s.y).data());
    });
  };
  forward("good", Answer::kSuccess, {});
  forward("algorithm", Answer::kBadParam, {.algorithm = 3});
  forward("mode", Answer::kBadParam, {.mode = 2});
  forward("dims", Answer::kBadParam, {.y = &Arguments::wide});
  forward("type", Answer::kBadParam, {.y = &Arguments::half});
  forward("layouts", Answer::kSuccess, {.y = &Arguments::nhwc});
  forward("bytes", Answer::kNotSupported, {.x = &Arguments::bytes, .y = &Arguments::bytes});
  backward("good", Answer::kSuccess, {});
  backward("algorithm", Answer::kBadParam, {.algorithm = -1});
  backward("mode", Answer::kBadParam, {.mode = 2});
  backward("dims_of_dy", Answer::kBadParam, {.dy = &Arguments::wide});
  backward("dims_of_dx", Answer::kBadParam, {.y = &Arguments::wide});
  backward("strides_of_dy", Answer::kBadParam, {.dy = &Arguments::nhwc});
  backward("layouts", Answer::kSuccess, {.y = &Arguments::nhwc});
  backward("type", Answer::kBadParam, {.y = &Arguments::half});
}

// ---- pooling

void AddPooling(std::vector<LegacyCase>& cases) {
  struct Tensors {
    LegacyTensor Arguments::*y = &Arguments::small, Arguments::*dy = &Arguments::small,
                 Arguments::*x = &Arguments::x, Arguments::*dx = &Arguments::dx;
  };
  const auto add = [&](const char* name, Answer answer, Tensors t) {
    Add(cases, std::string("pooling_backward_") + name, answer, [=](Arguments& a) {
      auto pooling = a.c.client.New<cudnnPoolingDescriptor_t>("Pooling");
      KILN_CALL(a.c.client, cudnnSetPooling2dDescriptor, pooling, CUDNN_POOLING_MAX,
                CUDNN_NOT_PROPAGATE_NAN, 2, 2, 0, 0, 2, 2);
      return KILN_CALL(a.c.client, cudnnPoolingBackward, a.c.handle, pooling,
                       static_cast<const void*>(&a.one), (a.*t.y).desc(), (a.*t.y).data(),
                       (a.*t.dy).desc(), (a.*t.dy).data(), (a.*t.x).desc(), (a.*t.x).data(),
                       static_cast<const void*>(&a.zero), (a.*t.dx).desc(), (a.*t.dx).data());
    });
  };
  add("good", Answer::kSuccess, {});
  add("dims_of_dy", Answer::kBadParam, {.dy = &Arguments::x});
  add("dims_of_dx", Answer::kBadParam, {.dx = &Arguments::wide});
  add("strides_of_dx", Answer::kBadParam, {.dx = &Arguments::nhwc});
  add("type", Answer::kBadParam, {.dx = &Arguments::half});
  add("spatial_dims", Answer::kBadParam, {.x = &Arguments::volume, .dx = &Arguments::volume});
}

// ---- LRN and divisive normalisation

cudnnLRNDescriptor_t DefaultLrn(Arguments& a) {
  auto lrn = a.c.client.New<cudnnLRNDescriptor_t>("LRN");
  KILN_CALL(a.c.client, cudnnSetLRNDescriptor, lrn, 5u, 1e-4, 0.75, 2.0);
  return lrn;
}

struct Norm {
  int mode = 0;
  LegacyTensor Arguments::*x = &Arguments::x, Arguments::*y = &Arguments::y;
  bool no_x = false, no_y = false, no_temp = false, no_temp2 = false;
};

void AddLrn(std::vector<LegacyCase>& cases) {
  const auto given = [](const LegacyTensor& t, bool missing) {
    return missing ? static_cast<void*>(nullptr) : t.data();
  };
  const auto add = [&](const std::string& name, Answer answer, Norm n) {
    // Nothing reads y in the gradient.
    const Answer of_gradient = n.no_y ? Answer::kSuccess : answer;
    Add(cases, "lrn_forward_" + name, answer, [=](Arguments& a) {
      return KILN_CALL(a.c.client, cudnnLRNCrossChannelForward, a.c.handle, DefaultLrn(a),
                       As<cudnnLRNMode_t>(n.mode), static_cast<const void*>(&a.one),
                       (a.*n.x).desc(), given(a.*n.x, n.no_x), static_cast<const void*>(&a.zero),
                       (a.*n.y).desc(), given(a.*n.y, n.no_y));
    });
    Add(cases, "lrn_backward_" + name, of_gradient, [=](Arguments& a) {
      const LegacyTensor& dx = n.y == &Arguments::y ? a.dx : a.*n.y;
      return KILN_CALL(a.c.client, cudnnLRNCrossChannelBackward, a.c.handle, DefaultLrn(a),
                       As<cudnnLRNMode_t>(n.mode), static_cast<const void*>(&a.one),
                       (a.*n.x).desc(), given(a.more, n.no_y), (a.*n.x).desc(), a.dy.data(),
                       (a.*n.x).desc(), given(a.*n.x, n.no_x), static_cast<const void*>(&a.zero),
                       dx.desc(), dx.data());
    });
  };
  add("good", Answer::kSuccess, {});
  add("mode", Answer::kBadParam, {.mode = 1});
  add("no_x", Answer::kBadParam, {.no_x = true});
  add("no_y", Answer::kBadParam, {.no_y = true});
  add("type", Answer::kNotSupported, {.y = &Arguments::half});
  add("dims", Answer::kNotSupported, {.y = &Arguments::wide});
  add("six", Answer::kNotSupported, {.x = &Arguments::six, .y = &Arguments::six});
  add("volume_not_packed", Answer::kBadParam,
      {.x = &Arguments::volume_nhwc, .y = &Arguments::volume});
  add("in_place", Answer::kNotSupported, {.y = &Arguments::x});
  const auto divisive = [&](const std::string& name, Answer answer, Norm n) {
    Add(cases, "divisive_forward_" + name, answer, [=](Arguments& a) {
      return KILN_CALL(a.c.client, cudnnDivisiveNormalizationForward, a.c.handle, DefaultLrn(a),
                       As<cudnnDivNormMode_t>(n.mode), static_cast<const void*>(&a.one),
                       (a.*n.x).desc(), given(a.*n.x, n.no_x), static_cast<const void*>(nullptr),
                       given(a.more, n.no_temp), given(a.dx, n.no_temp2),
                       static_cast<const void*>(&a.zero), (a.*n.y).desc(), given(a.*n.y, n.no_y));
    });
    Add(cases, "divisive_backward_" + name, answer, [=](Arguments& a) {
      return KILN_CALL(a.c.client, cudnnDivisiveNormalizationBackward, a.c.handle, DefaultLrn(a),
                       As<cudnnDivNormMode_t>(n.mode), static_cast<const void*>(&a.one),
                       (a.*n.x).desc(), given(a.*n.x, n.no_x), static_cast<const void*>(nullptr),
                       static_cast<const void*>(a.dy.data()), given(a.more, n.no_temp),
                       given(a.dx, n.no_temp2), static_cast<const void*>(&a.zero), (a.*n.y).desc(),
                       given(a.*n.y, n.no_y), static_cast<void*>(nullptr));
    });
  };
  divisive("good", Answer::kSuccess, {});
  divisive("mode", Answer::kBadParam, {.mode = 1});
  divisive("no_x", Answer::kBadParam, {.no_x = true});
  divisive("no_y", Answer::kBadParam, {.no_y = true});
  divisive("no_temp", Answer::kBadParam, {.no_temp = true});
  divisive("no_temp2", Answer::kBadParam, {.no_temp2 = true});
  divisive("dims", Answer::kBadParam, {.y = &Arguments::wide});
  divisive("three_dims", Answer::kBadParam, {.x = &Arguments::flat, .y = &Arguments::flat});
  divisive("strides", Answer::kNotSupported, {.y = &Arguments::nhwc});
}

// ---- batch normalisation

void AddNorm(std::vector<LegacyCase>& cases) {
  struct BatchNorm {
    int mode = CUDNN_BATCHNORM_SPATIAL;
    LegacyTensor Arguments::*x = &Arguments::x, Arguments::*y = &Arguments::y,
                 Arguments::*parameters = &Arguments::parameters;
    double epsilon = 1e-3;
    bool no_x = false, no_y = false, no_scale = false, no_bias = false, one_saved = false,
         one_running = false;
  };
  const auto given = [](const LegacyTensor& t, bool missing) {
    return missing ? static_cast<void*>(nullptr) : t.data();
  };
  const auto add = [&](const std::string& name, Answer answer, BatchNorm n, bool forward = true,
                       bool backward = true) {
    if (forward)
      Add(cases, "batch_norm_forward_" + name, answer, [=](Arguments& a) {
        void* const running = n.one_running ? a.other.data() : nullptr;
        void* const saved = n.one_saved ? a.other.data() : nullptr;
        void* const none = nullptr;
        return KILN_CALL(a.c.client, cudnnBatchNormalizationForwardTraining, a.c.handle,
                         As<cudnnBatchNormMode_t>(n.mode), static_cast<const void*>(&a.one),
                         static_cast<const void*>(&a.zero), (a.*n.x).desc(), given(a.*n.x, n.no_x),
                         (a.*n.y).desc(), given(a.*n.y, n.no_y), (a.*n.parameters).desc(),
                         given(a.parameters, n.no_scale), given(a.parameters, n.no_bias), 0.5,
                         running, none, n.epsilon, saved, none);
      });
    if (backward)
      Add(cases, "batch_norm_backward_" + name, answer, [=](Arguments& a) {
        void* const saved = n.one_saved ? a.other.data() : nullptr;
        void* const none = nullptr;
        return KILN_CALL(a.c.client, cudnnBatchNormalizationBackward, a.c.handle,
                         As<cudnnBatchNormMode_t>(n.mode), static_cast<const void*>(&a.one),
                         static_cast<const void*>(&a.zero), static_cast<const void*>(&a.one),
                         static_cast<const void*>(&a.zero), (a.*n.x).desc(), given(a.*n.x, n.no_x),
                         (a.*n.x).desc(), a.dy.data(), (a.*n.y).desc(), given(a.*n.y, n.no_y),
                         (a.*n.parameters).desc(), given(a.parameters, n.no_scale),
                         given(a.other, n.no_bias), a.small.data(), n.epsilon, saved, none);
      });
  };
  add("good", Answer::kSuccess, {});
  add("mode", Answer::kBadParam, {.mode = 3});
  add("epsilon", Answer::kBadParam, {.epsilon = -1e-3});
  add("no_x", Answer::kBadParam, {.no_x = true});
  add("no_y", Answer::kBadParam, {.no_y = true});
  add("no_scale", Answer::kBadParam, {.no_scale = true});
  add("no_bias", Answer::kBadParam, {.no_bias = true});
  add("one_saved", Answer::kBadParam, {.one_saved = true});
  add("one_running", Answer::kSuccess, {.one_running = true}, true, false);
  add("dims", Answer::kBadParam, {.y = &Arguments::wide});
  add("type", Answer::kBadParam, {.y = &Arguments::half});
  add("parameters", Answer::kBadParam, {.parameters = &Arguments::x});
  add("per_activation", Answer::kBadParam, {.mode = CUDNN_BATCHNORM_PER_ACTIVATION});
  add("six", Answer::kBadParam, {.x = &Arguments::six, .y = &Arguments::six});
}

// ---- spatial transformer

void AddSpatial(std::vector<LegacyCase>& cases) {
  struct Transformer {
    std::vector<int> dims = {2, 3, 4, 6};
    LegacyTensor Arguments::*x = &Arguments::x, Arguments::*y = &Arguments::y;
    bool no_theta = false, no_grid = false, no_x = false, no_y = false;
    int type = CUDNN_DATA_FLOAT;
  };
  const auto describe = [](Arguments& a, const Transformer& t) {
    auto s = a.c.client.New<cudnnSpatialTransformerDescriptor_t>("SpatialTransformer");
    KILN_CALL(a.c.client, cudnnSetSpatialTransformerNdDescriptor, s, CUDNN_SAMPLER_BILINEAR,
              As<cudnnDataType_t>(t.type), static_cast<int>(t.dims.size()), t.dims.data());
    return s;
  };
  const auto given = [](const LegacyTensor& t, bool missing) {
    return missing ? static_cast<void*>(nullptr) : t.data();
  };
  const auto grid = [&](const std::string& name, Answer answer, Transformer t) {
    Add(cases, "grid_forward_" + name, answer, [=](Arguments& a) {
      return KILN_CALL(a.c.client, cudnnSpatialTfGridGeneratorForward, a.c.handle, describe(a, t),
                       static_cast<const void*>(given(a.small, t.no_theta)), given(a.y, t.no_grid));
    });
    Add(cases, "grid_backward_" + name, answer, [=](Arguments& a) {
      return KILN_CALL(a.c.client, cudnnSpatialTfGridGeneratorBackward, a.c.handle, describe(a, t),
                       static_cast<const void*>(given(a.y, t.no_grid)), given(a.small, t.no_theta));
    });
  };
  grid("good", Answer::kSuccess, {});
  grid("no_theta", Answer::kBadParam, {.no_theta = true});
  grid("no_grid", Answer::kBadParam, {.no_grid = true});
  grid("five_dims", Answer::kNotSupported, {.dims = {2, 3, 2, 2, 3}});
  grid("three_dims", Answer::kNotSupported, {.dims = {2, 3, 4}});
  const auto sampler = [&](const std::string& name, Answer answer, Transformer t) {
    Add(cases, "sampler_forward_" + name, answer, [=](Arguments& a) {
      return KILN_CALL(a.c.client, cudnnSpatialTfSamplerForward, a.c.handle, describe(a, t),
                       static_cast<const void*>(&a.one), (a.*t.x).desc(),
                       static_cast<const void*>(given(a.*t.x, t.no_x)),
                       static_cast<const void*>(given(a.dy, t.no_grid)),
                       static_cast<const void*>(&a.zero), (a.*t.y).desc(), given(a.*t.y, t.no_y));
    });
    Add(cases, "sampler_backward_" + name, answer, [=](Arguments& a) {
      return KILN_CALL(a.c.client, cudnnSpatialTfSamplerBackward, a.c.handle, describe(a, t),
                       static_cast<const void*>(&a.one), (a.*t.x).desc(),
                       static_cast<const void*>(given(a.*t.x, t.no_x)),
                       static_cast<const void*>(&a.zero), (a.*t.x).desc(), a.volume.data(),
                       static_cast<const void*>(&a.one), (a.*t.y).desc(),
                       static_cast<const void*>(given(a.*t.y, t.no_y)),
                       static_cast<const void*>(given(a.dy, t.no_grid)),
                       static_cast<const void*>(&a.zero), a.more.data());
    });
  };
  sampler("good", Answer::kSuccess, {});
  sampler("no_x", Answer::kBadParam, {.no_x = true});
  sampler("no_y", Answer::kBadParam, {.no_y = true});
  sampler("no_grid", Answer::kBadParam, {.no_grid = true});
  sampler("dims", Answer::kBadParam, {.y = &Arguments::wide});
  sampler("type", Answer::kBadParam, {.y = &Arguments::half});
  sampler("five_dims", Answer::kNotSupported,
          {.dims = {2, 3, 4, 6, 2}, .x = &Arguments::volume, .y = &Arguments::volume});
}

}  // namespace

std::vector<LegacyCase> MisuseCases() {
  std::vector<LegacyCase> cases;
  AddSoftmax(cases);
  AddPooling(cases);
  AddLrn(cases);
  AddNorm(cases);
  AddSpatial(cases);
  return cases;
}

}  // namespace kiln::testing
