/*
 * A C99 client of the public interface: conv + bias + relu through the backend API on the library's
 * CPU device, compared with plain loops. Compiled and linked once for each generation.
 */
#include <cudnn.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

enum { kN = 2, kC = 8, kH = 6, kK = 5, kR = 3 };
enum { kX = kN * kC * kH * kH, kW = kK * kC * kR * kR, kY = kN * kK * kH * kH };

#define RETURN_IF_FAILED(call)                                   \
  do {                                                           \
    cudnnStatus_t status_ = (call);                              \
    if (status_ != CUDNN_STATUS_SUCCESS) {                       \
      fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #call); \
      return status_;                                            \
    }                                                            \
  } while (0)

static cudnnStatus_t SetDescriptor(cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                                   cudnnBackendDescriptor_t value) {
  return cudnnBackendSetAttribute(d, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
}

static cudnnStatus_t SetInts(cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                             int64_t count, const int64_t* values) {
  return cudnnBackendSetAttribute(d, name, CUDNN_TYPE_INT64, count, values);
}

static cudnnStatus_t MakeTensor(int64_t uid, int64_t n, int64_t c, int64_t h, int64_t w,
                                bool is_virtual, cudnnBackendDescriptor_t* out) {
  const int64_t dims[4] = {n, c, h, w};
  const int64_t strides[4] = {c * h * w, h * w, w, 1};
  const int64_t alignment = 16;
  const cudnnDataType_t type = CUDNN_DATA_FLOAT;
  RETURN_IF_FAILED(cudnnBackendCreateDescriptor(CUDNN_BACKEND_TENSOR_DESCRIPTOR, out));
  RETURN_IF_FAILED(SetInts(*out, CUDNN_ATTR_TENSOR_UNIQUE_ID, 1, &uid));
  RETURN_IF_FAILED(SetInts(*out, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, 1, &alignment));
  RETURN_IF_FAILED(SetInts(*out, CUDNN_ATTR_TENSOR_DIMENSIONS, 4, dims));
  RETURN_IF_FAILED(SetInts(*out, CUDNN_ATTR_TENSOR_STRIDES, 4, strides));
  RETURN_IF_FAILED(
      cudnnBackendSetAttribute(*out, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type));
  RETURN_IF_FAILED(cudnnBackendSetAttribute(*out, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN,
                                            1, &is_virtual));
  return cudnnBackendFinalize(*out);
}

static cudnnStatus_t MakeConvolution(cudnnBackendDescriptor_t x, cudnnBackendDescriptor_t w,
                                     cudnnBackendDescriptor_t y, cudnnBackendDescriptor_t* out) {
  const int64_t spatial = 2, ones[2] = {1, 1};
  const float alpha = 1, beta = 0;
  const cudnnDataType_t type = CUDNN_DATA_FLOAT;
  const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
  cudnnBackendDescriptor_t conv;
  RETURN_IF_FAILED(cudnnBackendCreateDescriptor(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, &conv));
  RETURN_IF_FAILED(cudnnBackendSetAttribute(conv, CUDNN_ATTR_CONVOLUTION_COMP_TYPE,
                                            CUDNN_TYPE_DATA_TYPE, 1, &type));
  RETURN_IF_FAILED(cudnnBackendSetAttribute(conv, CUDNN_ATTR_CONVOLUTION_CONV_MODE,
                                            CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode));
  RETURN_IF_FAILED(SetInts(conv, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, 1, &spatial));
  RETURN_IF_FAILED(SetInts(conv, CUDNN_ATTR_CONVOLUTION_DILATIONS, 2, ones));
  RETURN_IF_FAILED(SetInts(conv, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, 2, ones));
  RETURN_IF_FAILED(SetInts(conv, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, 2, ones));
  RETURN_IF_FAILED(SetInts(conv, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, 2, ones));
  RETURN_IF_FAILED(cudnnBackendFinalize(conv));

  RETURN_IF_FAILED(
      cudnnBackendCreateDescriptor(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR, out));
  RETURN_IF_FAILED(SetDescriptor(*out, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, x));
  RETURN_IF_FAILED(SetDescriptor(*out, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, w));
  RETURN_IF_FAILED(SetDescriptor(*out, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, y));
  RETURN_IF_FAILED(SetDescriptor(*out, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, conv));
  RETURN_IF_FAILED(cudnnBackendSetAttribute(*out, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
                                            CUDNN_TYPE_FLOAT, 1, &alpha));
  RETURN_IF_FAILED(cudnnBackendSetAttribute(*out, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA,
                                            CUDNN_TYPE_FLOAT, 1, &beta));
  RETURN_IF_FAILED(cudnnBackendFinalize(*out));
  return cudnnBackendDestroyDescriptor(conv);
}

static cudnnStatus_t MakePointwise(cudnnPointwiseMode_t mode, cudnnBackendDescriptor_t x,
                                   cudnnBackendDescriptor_t b, cudnnBackendDescriptor_t y,
                                   cudnnBackendDescriptor_t* out) {
  const cudnnDataType_t type = CUDNN_DATA_FLOAT;
  cudnnBackendDescriptor_t pointwise;
  RETURN_IF_FAILED(cudnnBackendCreateDescriptor(CUDNN_BACKEND_POINTWISE_DESCRIPTOR, &pointwise));
  RETURN_IF_FAILED(cudnnBackendSetAttribute(pointwise, CUDNN_ATTR_POINTWISE_MODE,
                                            CUDNN_TYPE_POINTWISE_MODE, 1, &mode));
  RETURN_IF_FAILED(cudnnBackendSetAttribute(pointwise, CUDNN_ATTR_POINTWISE_MATH_PREC,
                                            CUDNN_TYPE_DATA_TYPE, 1, &type));
  RETURN_IF_FAILED(cudnnBackendFinalize(pointwise));
  RETURN_IF_FAILED(cudnnBackendCreateDescriptor(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, out));
  RETURN_IF_FAILED(SetDescriptor(*out, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, pointwise));
  RETURN_IF_FAILED(SetDescriptor(*out, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x));
  if (b != NULL) RETURN_IF_FAILED(SetDescriptor(*out, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b));
  RETURN_IF_FAILED(SetDescriptor(*out, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y));
  RETURN_IF_FAILED(cudnnBackendFinalize(*out));
  return cudnnBackendDestroyDescriptor(pointwise);
}

static cudnnStatus_t MakeGraph(cudnnHandle_t handle, cudnnBackendDescriptor_t* graph) {
  cudnnBackendDescriptor_t x, w, b, y, conv_out, bias_out, ops[3];
  RETURN_IF_FAILED(MakeTensor(1, kN, kC, kH, kH, false, &x));
  RETURN_IF_FAILED(MakeTensor(2, kK, kC, kR, kR, false, &w));
  RETURN_IF_FAILED(MakeTensor(3, 1, kK, 1, 1, false, &b));
  RETURN_IF_FAILED(MakeTensor(4, kN, kK, kH, kH, false, &y));
  RETURN_IF_FAILED(MakeTensor(5, kN, kK, kH, kH, true, &conv_out));
  RETURN_IF_FAILED(MakeTensor(6, kN, kK, kH, kH, true, &bias_out));
  RETURN_IF_FAILED(MakeConvolution(x, w, conv_out, &ops[0]));
  RETURN_IF_FAILED(MakePointwise(CUDNN_POINTWISE_ADD, conv_out, b, bias_out, &ops[1]));
  RETURN_IF_FAILED(MakePointwise(CUDNN_POINTWISE_RELU_FWD, bias_out, NULL, y, &ops[2]));
  RETURN_IF_FAILED(cudnnBackendCreateDescriptor(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, graph));
  RETURN_IF_FAILED(cudnnBackendSetAttribute(*graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE,
                                            CUDNN_TYPE_HANDLE, 1, &handle));
  RETURN_IF_FAILED(cudnnBackendSetAttribute(*graph, CUDNN_ATTR_OPERATIONGRAPH_OPS,
                                            CUDNN_TYPE_BACKEND_DESCRIPTOR, 3, ops));
  RETURN_IF_FAILED(cudnnBackendFinalize(*graph));
  {
    cudnnBackendDescriptor_t all[9] = {x, w, b, y, conv_out, bias_out, ops[0], ops[1], ops[2]};
    for (int i = 0; i < 9; ++i) RETURN_IF_FAILED(cudnnBackendDestroyDescriptor(all[i]));
  }
  return CUDNN_STATUS_SUCCESS;
}

/* The first configuration of the heuristics, as a plan. */
static cudnnStatus_t MakePlan(cudnnHandle_t handle, cudnnBackendDescriptor_t graph,
                              cudnnBackendDescriptor_t* plan) {
  const cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A;
  cudnnBackendDescriptor_t heuristics, config;
  int64_t count = 0;
  RETURN_IF_FAILED(cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, &heuristics));
  RETURN_IF_FAILED(SetDescriptor(heuristics, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph));
  RETURN_IF_FAILED(cudnnBackendSetAttribute(heuristics, CUDNN_ATTR_ENGINEHEUR_MODE,
                                            CUDNN_TYPE_HEUR_MODE, 1, &mode));
  RETURN_IF_FAILED(cudnnBackendFinalize(heuristics));
  RETURN_IF_FAILED(cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, &config));
  RETURN_IF_FAILED(cudnnBackendGetAttribute(heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                            CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count, &config));
  RETURN_IF_FAILED(cudnnBackendCreateDescriptor(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, plan));
  RETURN_IF_FAILED(cudnnBackendSetAttribute(*plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE,
                                            CUDNN_TYPE_HANDLE, 1, &handle));
  RETURN_IF_FAILED(SetDescriptor(*plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config));
  RETURN_IF_FAILED(cudnnBackendFinalize(*plan));
  RETURN_IF_FAILED(cudnnBackendDestroyDescriptor(config));
  return cudnnBackendDestroyDescriptor(heuristics);
}

static cudnnStatus_t Execute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan, float* x,
                             float* w, float* b, float* y) {
  const int64_t uids[4] = {1, 2, 3, 4};
  void *pointers[4], *workspace = NULL;
  int64_t size = 0;
  cudnnBackendDescriptor_t pack;
  pointers[0] = x, pointers[1] = w, pointers[2] = b, pointers[3] = y;
  RETURN_IF_FAILED(cudnnBackendGetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                            CUDNN_TYPE_INT64, 1, NULL, &size));
  workspace = malloc((size_t)size + 1);
  RETURN_IF_FAILED(cudnnBackendCreateDescriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &pack));
  RETURN_IF_FAILED(SetInts(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, 4, uids));
  RETURN_IF_FAILED(cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS,
                                            CUDNN_TYPE_VOID_PTR, 4, pointers));
  RETURN_IF_FAILED(cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE,
                                            CUDNN_TYPE_VOID_PTR, 1, &workspace));
  RETURN_IF_FAILED(cudnnBackendFinalize(pack));
  RETURN_IF_FAILED(cudnnBackendExecute(handle, plan, pack));
  free(workspace);
  return cudnnBackendDestroyDescriptor(pack);
}

static double Expected(const float* x, const float* w, const float* b, int n, int k, int p, int q) {
  double sum = b[k];
  for (int c = 0; c < kC; ++c) {
    for (int r = 0; r < kR; ++r) {
      for (int s = 0; s < kR; ++s) {
        int h = p + r - 1, v = q + s - 1;
        if (h < 0 || h >= kH || v < 0 || v >= kH) continue;
        sum += (double)x[((n * kC + c) * kH + h) * kH + v] * w[((k * kC + c) * kR + r) * kR + s];
      }
    }
  }
  return sum > 0 ? sum : 0;
}

static int CountWrong(const float* x, const float* w, const float* b, const float* y) {
  int wrong = 0, positive = 0;
  for (int i = 0; i < kY; ++i) {
    double expected =
        Expected(x, w, b, i / (kK * kH * kH), i / (kH * kH) % kK, i / kH % kH, i % kH);
    positive += expected > 0;
    if (fabs(y[i] - expected) <= 1e-4) continue;
    if (wrong++ == 0) fprintf(stderr, "y[%d] is %g, not %g\n", i, y[i], expected);
  }
  /* Data that relu would wholly pass or wholly stop would prove little. */
  return wrong != 0 || positive < kY / 4 || positive > 3 * kY / 4;
}

/* Buffer i, aligned to the 16 bytes that the tensors promise; C99 has no aligned allocation. */
static float* Aligned(int i) {
  static char storage[4][sizeof(float) * kX + 16];
  return (float*)(storage[i] + (16 - (uintptr_t)storage[i] % 16) % 16);
}

int main(void) {
  float *x = Aligned(0), *w = Aligned(1), *b = Aligned(2), *y = Aligned(3);
  cudnnHandle_t handle;
  cudnnBackendDescriptor_t graph, plan;
  cudnnStatus_t status = CUDNN_STATUS_SUCCESS;
  int wrong = 1;
  if (cudnnGetVersion() != CUDNN_VERSION)
    return fprintf(stderr, "compiled for another version\n"), 1;
  for (int i = 0; i < kX; ++i) x[i] = (float)(i * 37 % 101 - 50) / 50;
  for (int i = 0; i < kW; ++i) w[i] = (float)(i * 53 % 89 - 44) / 44;
  for (int i = 0; i < kK; ++i) b[i] = (float)(i - 2) / 4;
  for (int i = 0; i < kY; ++i) y[i] = -1;
  status = cudnnCreate(&handle);
  if (status == CUDNN_STATUS_SUCCESS) status = MakeGraph(handle, &graph);
  if (status == CUDNN_STATUS_SUCCESS) status = MakePlan(handle, graph, &plan);
  if (status == CUDNN_STATUS_SUCCESS) status = Execute(handle, plan, x, w, b, y);
  if (status == CUDNN_STATUS_SUCCESS) wrong = CountWrong(x, w, b, y);
  if (status == CUDNN_STATUS_SUCCESS) status = cudnnBackendDestroyDescriptor(plan);
  if (status == CUDNN_STATUS_SUCCESS) status = cudnnBackendDestroyDescriptor(graph);
  if (status == CUDNN_STATUS_SUCCESS) status = cudnnDestroy(handle);
  if (status != CUDNN_STATUS_SUCCESS) {
    char why[2048] = "";
#if CUDNN_MAJOR >= 9
    cudnnGetLastErrorString(why, sizeof(why));
#endif
    fprintf(stderr, "%s %s\n", cudnnGetErrorString(status), why);
    return 1;
  }
  printf("cuDNN %d: conv + bias + relu: %s\n", CUDNN_VERSION, wrong ? "WRONG" : "right");
  return wrong;
}
