/*
 * relu(x * scale + bias) through cuDNN's backend interface, as docs/tour.md shows it. The graph is
 * the one of examples/graphs/scale_bias_relu.kiln. Run with KILN_DEVICE=cpu, where pointers are the
 * host's.
 */
#include <cudnn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

typedef cudnnBackendDescriptor_t Descriptor;

typedef struct {
  cudnnBackendAttributeName_t name;
  cudnnBackendAttributeType_t type;
  int64_t count;
  const void* values;
} Attribute;

static void Check(cudnnStatus_t status, const char* call) {
  char sentence[512] = "";
  if (status == CUDNN_STATUS_SUCCESS) return;
  cudnnGetLastErrorString(sentence, sizeof sentence);
  fprintf(stderr, "%s: %s\n%s\n", call, cudnnGetErrorString(status), sentence);
  exit(1);
}
#define CHECK(call) Check(call, #call)

static Descriptor Make(cudnnBackendDescriptorType_t type, const Attribute* a, size_t count) {
  Descriptor descriptor;
  CHECK(cudnnBackendCreateDescriptor(type, &descriptor));
  for (size_t i = 0; i < count; ++i)
    CHECK(cudnnBackendSetAttribute(descriptor, a[i].name, a[i].type, a[i].count, a[i].values));
  CHECK(cudnnBackendFinalize(descriptor));
  return descriptor;
}
#define MAKE(kind, ...)                                                     \
  Make(CUDNN_BACKEND_##kind##_DESCRIPTOR, (const Attribute[]){__VA_ARGS__}, \
       sizeof((const Attribute[]){__VA_ARGS__}) / sizeof(Attribute))

static Descriptor Tensor(int64_t uid, cudnnDataType_t type, const int64_t* dims,
                         const int64_t* strides, bool is_virtual) {
  const int64_t alignment = 16;
  return MAKE(TENSOR, {CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &uid},
              {CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type},
              {CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, dims},
              {CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, strides},
              {CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment},
              {CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &is_virtual});
}

/* `b` is the second operand; relu has none and passes `x` of an operation without it. */
static Descriptor Pointwise(cudnnPointwiseMode_t mode, Descriptor x, Descriptor b, Descriptor y) {
  const cudnnDataType_t compute = CUDNN_DATA_FLOAT;
  const Descriptor pointwise =
      MAKE(POINTWISE, {CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode},
           {CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &compute});
  const Attribute attributes[] = {
      {CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &pointwise},
      {CUDNN_ATTR_OPERATION_POINTWISE_XDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &x},
      {CUDNN_ATTR_OPERATION_POINTWISE_YDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &y},
      {CUDNN_ATTR_OPERATION_POINTWISE_BDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &b}};
  return Make(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, attributes, b == NULL ? 3 : 4);
}

/* tour: begin */
static Descriptor MakePlan(cudnnHandle_t handle) {
  const int64_t nhwc[] = {32, 64, 56, 56}, nhwc_strides[] = {200704, 1, 3584, 64};
  const int64_t channel[] = {1, 64, 1, 1}, channel_strides[] = {64, 1, 1, 1};
  const Descriptor x = Tensor(1, CUDNN_DATA_HALF, nhwc, nhwc_strides, false);
  const Descriptor scale = Tensor(2, CUDNN_DATA_HALF, channel, channel_strides, false);
  const Descriptor bias = Tensor(3, CUDNN_DATA_HALF, channel, channel_strides, false);
  const Descriptor scaled = Tensor(5, CUDNN_DATA_FLOAT, nhwc, nhwc_strides, true);
  const Descriptor biased = Tensor(6, CUDNN_DATA_FLOAT, nhwc, nhwc_strides, true);
  const Descriptor y = Tensor(4, CUDNN_DATA_HALF, nhwc, nhwc_strides, false);
  const Descriptor operations[] = {
      Pointwise(CUDNN_POINTWISE_MUL, x, scale, scaled),
      Pointwise(CUDNN_POINTWISE_ADD, scaled, bias, biased),
      Pointwise(CUDNN_POINTWISE_RELU_FWD, biased, NULL, y),
  };
  const Descriptor graph =
      MAKE(OPERATIONGRAPH, {CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle},
           {CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 3, operations});
  const int64_t compilers_choice = 0;
  const Descriptor engine =
      MAKE(ENGINE, {CUDNN_ATTR_ENGINE_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &graph},
           {CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &compilers_choice});
  const Descriptor config =
      MAKE(ENGINECFG, {CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &engine});
  return MAKE(EXECUTION_PLAN, {CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle},
              {CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &config});
}

static void Execute(cudnnHandle_t handle, Descriptor plan, void* x, void* scale, void* bias,
                    void* y) {
  const int64_t uids[] = {1, 2, 3, 4};
  void* const pointers[] = {x, scale, bias, y};
  const Descriptor pack =
      MAKE(VARIANT_PACK, {CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, 4, uids},
           {CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, 4, pointers});
  CHECK(cudnnBackendExecute(handle, plan, pack));
  CHECK(cudnnBackendDestroyDescriptor(pack));
}
/* tour: end */

enum { kElements = 32 * 64 * 56 * 56, kChannels = 64 };
enum { kHalfOne = 0x3c00, kHalfTwo = 0x4000, kHalfMinusOne = 0xbc00, kHalfMinusThree = 0xc200 };

/* C has no f16; the data are bit patterns. `bytes` is a multiple of 256. */
static uint16_t* Buffer(size_t elements) {
  uint16_t* memory = aligned_alloc(256, elements * sizeof(uint16_t) + 256);
  if (memory == NULL) exit(1);
  return memory;
}

int main(void) {
  cudnnHandle_t handle;
  uint16_t *x = Buffer(kElements), *y = Buffer(kElements);
  uint16_t *scale = Buffer(kChannels * 2), *bias = Buffer(kChannels * 2);
  int wrong = 0;
  for (int i = 0; i < kElements; ++i) x[i] = kHalfOne, y[i] = 0xffff;
  for (int c = 0; c < kChannels; ++c) {
    scale[c] = kHalfTwo;
    bias[c] = c % 2 == 0 ? kHalfMinusOne : kHalfMinusThree;
  }
  CHECK(cudnnCreate(&handle));
  Execute(handle, MakePlan(handle), x, scale, bias, y);
  CHECK(cudnnDestroy(handle));
  /* Channels are innermost: 1 * 2 - 1 = 1 where the channel is even, relu(1 * 2 - 3) = 0 elsewhere.
   */
  for (int i = 0; i < kElements; ++i) wrong += y[i] != (i % 2 == 0 ? kHalfOne : 0);
  printf("%d of %d elements are wrong\n", wrong, kElements);
  return wrong != 0;
}
