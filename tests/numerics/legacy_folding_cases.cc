// cudnnGetFoldedConvBackwardDataDescriptors: filter folded, dy padded, a convolution of stride 1,
// its gradient unfolded. That must be the gradient that the strided convolution has.
#include "tests/numerics/legacy_cases.h"

namespace kiln::testing {
namespace {

using oracle::Dims;

struct FoldingCase {
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  cudnnTensorFormat_t to = CUDNN_TENSOR_NHWC;
  Dims x_dims = {2, 3, 9, 10}, w_dims = {8, 3, 3, 3};
  Dims padding = {1, 1}, stride = {2, 2}, dilation = {1, 1};
  cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
};

// Memory for what a descriptor describes.
template <class D>
Buffer Room(const LegacyContext& c, D descriptor,
            cudnnStatus_t (*size)(const LegacyContext&, D, size_t*)) {
  size_t bytes = 0;
  size(c, descriptor, &bytes);
  return Buffer(c.device, bytes);
}
Buffer RoomOf(const LegacyContext& c, cudnnTensorDescriptor_t t) {
  return Room<cudnnTensorDescriptor_t>(
      c, t, [](const LegacyContext& context, cudnnTensorDescriptor_t d, size_t* bytes) {
        return KILN_CALL(context.client, cudnnGetTensorSizeInBytes, d, bytes);
      });
}
Buffer RoomOf(const LegacyContext& c, cudnnFilterDescriptor_t w) {
  return Room<cudnnFilterDescriptor_t>(
      c, w, [](const LegacyContext& context, cudnnFilterDescriptor_t d, size_t* bytes) {
        return KILN_CALL(context.client, cudnnGetFilterSizeInBytes, d, bytes);
      });
}

std::string Run(const FoldingCase& v, const LegacyContext& c) {
  const oracle::ConvGeometry geometry = {.pre_padding = v.padding,
                                         .post_padding = v.padding,
                                         .stride = v.stride,
                                         .dilation = v.dilation};
  const LegacyTensor dx = c.Tensor({v.type}, v.x_dims, 1), w = c.Tensor({v.type}, v.w_dims, 2),
                     dy = c.Tensor({v.type}, oracle::ConvOutputDims(geometry, v.x_dims, v.w_dims),
                                   3);
  LegacyClient& client = c.client;
  auto filter = client.New<cudnnFilterDescriptor_t>("Filter"),
       folded_filter = client.New<cudnnFilterDescriptor_t>("Filter");
  auto conv = client.New<cudnnConvolutionDescriptor_t>("Convolution"),
       folded_conv = client.New<cudnnConvolutionDescriptor_t>("Convolution");
  auto padded_dy = client.New<cudnnTensorDescriptor_t>("Tensor"),
       folded_dx = client.New<cudnnTensorDescriptor_t>("Tensor");
  std::array<cudnnTensorTransformDescriptor_t, 4> t;
  for (auto& transform : t)
    transform = client.New<cudnnTensorTransformDescriptor_t>("TensorTransform");
  const auto at = [](const Dims& d, size_t i) { return static_cast<int>(d[i]); };
  KILN_CALL(client, cudnnSetFilter4dDescriptor, filter, v.type, CUDNN_TENSOR_NCHW, at(v.w_dims, 0),
            at(v.w_dims, 1), at(v.w_dims, 2), at(v.w_dims, 3));
  KILN_CALL(client, cudnnSetConvolution2dDescriptor, conv, at(v.padding, 0), at(v.padding, 1),
            at(v.stride, 0), at(v.stride, 1), at(v.dilation, 0), at(v.dilation, 1), v.mode,
            CUDNN_DATA_FLOAT);
  KILN_CALL(client, cudnnSetConvolutionMathType, conv, CUDNN_FMA_MATH);
  std::string error = c.Done(KILN_CALL(client, cudnnGetFoldedConvBackwardDataDescriptors, c.handle,
                                       filter, dy.desc(), conv, dx.desc(), v.to, folded_filter,
                                       padded_dy, folded_conv, folded_dx, t[0], t[1], t[2], t[3]));
  if (!error.empty()) return error;
  const Buffer w_room = RoomOf(c, folded_filter), dy_room = RoomOf(c, padded_dy),
               dx_room = RoomOf(c, folded_dx);
  const float one = 1, zero = 0;
  const void *const alpha = &one, *const beta = &zero;
  void *const w_folded = w_room.data(), *const dy_padded = dy_room.data(),
              *const dx_folded = dx_room.data();
  error =
      FirstOf({c.Done(KILN_CALL(client, cudnnTransformFilter, c.handle, t[0], alpha, filter,
                                w.data(), beta, folded_filter, w_folded)),
               c.Done(KILN_CALL(client, cudnnTransformTensorEx, c.handle, t[1], alpha, dy.desc(),
                                dy.data(), beta, padded_dy, dy_padded)),
               // The old dx is folded too, as a client with a beta would; it is overwritten here.
               c.Done(KILN_CALL(client, cudnnTransformTensorEx, c.handle, t[2], alpha, dx.desc(),
                                dx.data(), beta, folded_dx, dx_folded)),
               c.Done(KILN_CALL(client, cudnnConvolutionBackwardData, c.handle, alpha,
                                folded_filter, w_folded, padded_dy, dy_padded, folded_conv,
                                CUDNN_CONVOLUTION_BWD_DATA_ALGO_0, static_cast<void*>(nullptr),
                                size_t{0}, beta, folded_dx, dx_folded)),
               c.Done(KILN_CALL(client, cudnnTransformTensorEx, c.handle, t[3], alpha, folded_dx,
                                dx_folded, beta, dx.desc(), dx.data()))});
  const Dense expected = oracle::ConvDgrad(geometry, dy.Before(), w.Before(), v.x_dims, {},
                                           {.compute = oracle::DType::kF32});
  return FirstOf({error, dx.Check(expected, 1), w.CheckUnchanged(), dy.CheckUnchanged()});
}

}  // namespace

std::vector<LegacyCase> FoldingCases() {
  const FoldingCase variants[] = {
      {},
      {.to = CUDNN_TENSOR_NCHW},
      {.type = CUDNN_DATA_HALF},
      {.x_dims = {1, 3, 23, 22}, .w_dims = {4, 3, 7, 7}, .padding = {3, 3}},
      {.x_dims = {2, 4, 20, 21}, .w_dims = {8, 4, 5, 4}, .padding = {2, 1}, .stride = {2, 3}},
      {.x_dims = {2, 5, 17, 16}, .w_dims = {8, 5, 1, 1}, .padding = {0, 0}},
      {.x_dims = {2, 5, 17, 16},
       .w_dims = {8, 5, 1, 1},
       .padding = {1, 0},
       .dilation = {3, 2},
       .mode = CUDNN_CONVOLUTION},
      {.x_dims = {2, 4, 16, 16}, .w_dims = {8, 4, 2, 4}, .padding = {0, 1}, .stride = {3, 2}},
      {.x_dims = {2, 4, 8, 9}, .w_dims = {8, 4, 3, 3}, .stride = {1, 1}},
      {.x_dims = {1, 3, 35, 35}, .w_dims = {8, 3, 11, 11}, .padding = {0, 0}, .stride = {4, 4}},
  };
  std::vector<LegacyCase> cases;
  for (const FoldingCase& v : variants) {
    cases.push_back({"folded_backward_data/" + Text(Layout{v.type}) + "_" + Text(v.x_dims) + "_" +
                         Text(v.w_dims) + "_p" + Text(v.padding) + "_s" + Text(v.stride) + "_to" +
                         std::to_string(v.to) + (v.mode == CUDNN_CONVOLUTION ? "_mirrored" : ""),
                     [=](const LegacyContext& c) { return Run(v, c); }});
  }
  return cases;
}

}  // namespace kiln::testing
