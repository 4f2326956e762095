// conv_bias_relu: the program that the walk-through beside it tunes. It computes relu(conv(x, w) +
// b), as graphs that the heuristics are asked about.
//
//   conv_bias_relu       succeeds if what both layers gave is right
//
// Programs that use cudnn-frontend make these calls through it; PyTorch does.
#include <algorithm>
#include <initializer_list>
#include <utility>

#include "../example.h"

namespace {

using namespace example;

using BackendDescriptor = cudnnBackendDescriptor_t;

struct Attribute {
  cudnnBackendAttributeName_t name;
  cudnnBackendAttributeType_t type;
  int64_t count;
  const void* values;
};

BackendDescriptor Make(cudnnBackendDescriptorType_t type,
                       std::initializer_list<Attribute> attributes) {
  BackendDescriptor descriptor;
  CHECK(cudnnBackendCreateDescriptor(type, &descriptor));
  for (const Attribute& a : attributes)
    CHECK(cudnnBackendSetAttribute(descriptor, a.name, a.type, a.count, a.values));
  CHECK(cudnnBackendFinalize(descriptor));
  return descriptor;
}

// The compiler's f16. Sums are f32.
using Half = _Float16;
constexpr cudnnDataType_t kHalf = CUDNN_DATA_HALF, kFloat = CUDNN_DATA_FLOAT;

// A dense tensor, NHWC, which dims name in the order N, C, H, W; a virtual one lives within the
// graph alone.
BackendDescriptor MakeTensor(int64_t uid, const Shape& shape, bool is_virtual = false) {
  const int64_t dims[] = {shape.n, shape.c, shape.h, shape.w};
  const int64_t strides[] = {int64_t(shape.c) * shape.h * shape.w, 1, int64_t(shape.w) * shape.c,
                             shape.c};
  const int64_t alignment = 16;
  return Make(
      CUDNN_BACKEND_TENSOR_DESCRIPTOR,
      {{CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &uid},
       {CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, is_virtual ? &kFloat : &kHalf},
       {CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, dims},
       {CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, strides},
       {CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment},
       {CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &is_virtual}});
}

BackendDescriptor MakeConvolution(BackendDescriptor x, BackendDescriptor w, BackendDescriptor y,
                                  int64_t pad) {
  const int64_t dims = 2, ones[] = {1, 1}, pads[] = {pad, pad};
  const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
  const BackendDescriptor convolution =
      Make(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR,
           {{CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &kFloat},
            {CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode},
            {CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, &dims},
            {CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 2, ones},
            {CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, 2, ones},
            {CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, 2, pads},
            {CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, 2, pads}});
  const float one = 1, zero = 0;
  return Make(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
              {{CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                1, &convolution},
               {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &x},
               {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &w},
               {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &y},
               {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, CUDNN_TYPE_FLOAT, 1, &one},
               {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, CUDNN_TYPE_FLOAT, 1, &zero}});
}

BackendDescriptor MakePointwiseMode(cudnnPointwiseMode_t mode) {
  return Make(CUDNN_BACKEND_POINTWISE_DESCRIPTOR,
              {{CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode},
               {CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &kFloat}});
}
BackendDescriptor MakeAdd(BackendDescriptor x, BackendDescriptor b, BackendDescriptor y) {
  const BackendDescriptor mode = MakePointwiseMode(CUDNN_POINTWISE_ADD);
  return Make(
      CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR,
      {{CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &mode},
       {CUDNN_ATTR_OPERATION_POINTWISE_XDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &x},
       {CUDNN_ATTR_OPERATION_POINTWISE_BDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &b},
       {CUDNN_ATTR_OPERATION_POINTWISE_YDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &y}});
}
BackendDescriptor MakeRelu(BackendDescriptor x, BackendDescriptor y) {
  const BackendDescriptor mode = MakePointwiseMode(CUDNN_POINTWISE_RELU_FWD);
  return Make(
      CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR,
      {{CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &mode},
       {CUDNN_ATTR_OPERATION_POINTWISE_XDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &x},
       {CUDNN_ATTR_OPERATION_POINTWISE_YDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &y}});
}

struct Layer {
  Shape x;
  int channels, side;  // of the filter, which is padded so that y is as large as x
  Shape w() const { return {channels, x.c, side, side}; }
  Shape b() const { return {1, channels, 1, 1}; }
  Shape y() const { return {x.n, channels, x.h, x.w}; }
};

enum Uid : int64_t { kX = 1, kW, kB, kY, kSum, kBiased };

BackendDescriptor MakeGraph(cudnnHandle_t handle, const Layer& layer) {
  const BackendDescriptor sum = MakeTensor(kSum, layer.y(), true),
                          biased = MakeTensor(kBiased, layer.y(), true);
  const BackendDescriptor operations[] = {
      MakeConvolution(MakeTensor(kX, layer.x), MakeTensor(kW, layer.w()), sum, layer.side / 2),
      MakeAdd(sum, MakeTensor(kB, layer.b()), biased),
      MakeRelu(biased, MakeTensor(kY, layer.y())),
  };
  return Make(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR,
              {{CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle},
               {CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 3, operations}});
}

// A plan of the configuration that the heuristics put first: a record's where there is one, else
// the model's.
BackendDescriptor MakePlan(cudnnHandle_t handle, BackendDescriptor graph) {
  const cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A;
  const BackendDescriptor heuristics =
      Make(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR,
           {{CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &graph},
            {CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode}});
  BackendDescriptor first;
  CHECK(cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, &first));
  int64_t found = 0;
  CHECK(cudnnBackendGetAttribute(heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                 CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &found, &first));
  return Make(
      CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR,
      {{CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle},
       {CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &first}});
}

// A tensor's values on the host.
struct Values {
  Values(const Shape& dims, Random& random) : shape(dims) {
    for (const float value : random.Normals(dims.size(), 1)) data.push_back(Half(value));
  }
  Values(const Shape& dims, std::vector<Half> values) : shape(dims), data(std::move(values)) {}
  double At(int n, int c, int h, int w) const {
    return double(data[((size_t(n) * shape.h + h) * shape.w + w) * shape.c + c]);
  }
  Shape shape;
  std::vector<Half> data;
};

// Plain loops at random places.
bool IsRight(const Values& x, const Values& w, const Values& b, const Values& y, Random& random) {
  const int side = w.shape.h, pad = side / 2;
  for (int place = 0; place < 200; ++place) {
    const int n = random.Below(y.shape.n), k = random.Below(y.shape.c), p = random.Below(y.shape.h),
              q = random.Below(y.shape.w);
    double sum = b.At(0, k, 0, 0), magnitude = std::abs(sum);
    for (int c = 0; c < x.shape.c; ++c) {
      for (int r = 0; r < side; ++r) {
        for (int s = 0; s < side; ++s) {
          const int h = p - pad + r, column = q - pad + s;
          if (h < 0 || h >= x.shape.h || column < 0 || column >= x.shape.w) continue;
          const double term = x.At(n, c, h, column) * w.At(k, c, r, s);
          sum += term;
          magnitude += std::abs(term);
        }
      }
    }
    const double expected = std::max(sum, 0.0), actual = y.At(n, k, p, q);
    // f16 has 11 bits.
    if (!(std::abs(actual - expected) <= 1e-3 * expected + 1e-6 * magnitude)) {
      std::fprintf(stderr, "y[%d, %d, %d, %d] is %g in place of %g\n", n, k, p, q, actual,
                   expected);
      return false;
    }
  }
  return true;
}

bool Run(const Device& device, cudnnHandle_t handle, const Layer& layer, Random& random) {
  const Values x_values(layer.x, random), w_values(layer.w(), random), b_values(layer.b(), random);
  const Array<Half> x(device, x_values.data), w(device, w_values.data), b(device, b_values.data),
      y(device, layer.y().size());

  const BackendDescriptor plan = MakePlan(handle, MakeGraph(handle, layer));
  int64_t bytes = 0, count = 0;
  CHECK(cudnnBackendGetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64,
                                 1, &count, &bytes));
  Workspace workspace(device);
  workspace.Grow(size_t(bytes));
  const int64_t uids[] = {kX, kW, kB, kY};
  void* const pointers[] = {x.data(), w.data(), b.data(), y.data()};
  void* const scratch = workspace.data();
  const BackendDescriptor pack =
      Make(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR,
           {{CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, 4, uids},
            {CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, 4, pointers},
            {CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &scratch}});

  constexpr int kRuns = 20, kLaunches = 10;
  double fastest = INFINITY;
  for (int run = 0; run < kRuns; ++run) {
    const Clock running;
    for (int launch = 0; launch < kLaunches; ++launch)
      CHECK(cudnnBackendExecute(handle, plan, pack));
    device.Synchronize();
    fastest = std::min(fastest, 1e6 * running.Seconds() / kLaunches);
  }
  std::printf("%d x %d filter, %d to %d channels, %d x %d: %.1f us\n", layer.side, layer.side,
              layer.x.c, layer.channels, layer.x.h, layer.x.w, fastest);
  return IsRight(x_values, w_values, b_values, Values(layer.y(), y.Get()), random);
}

}  // namespace

int main() {
  const Device device;
  const Handle handle;
  Random random(7);
  std::printf("on %s\n", device.name().c_str());
  bool right = true;
  for (const Layer& layer : {Layer{{1, 32, 28, 28}, 48, 3}, Layer{{1, 96, 14, 14}, 160, 1}})
    right = Run(device, handle, layer, random) && right;
  return right ? 0 : 1;
}
