// MapDims: a tensor as the dims of a tensor map, or the reason why the hardware cannot read it so.
// Rules are those of the CUDA driver API ("cuTensorMapEncodeTiled", "cuTensorMapEncodeIm2col").
#pragma once

#include <vector>

#include "ir/base/result.h"
#include "ir/graph/graph.h"
#include "ir/tensor_map.h"

namespace kiln::compiler {

// One dim of a tensor map: extent, and stride in elements.
struct MapDim {
  int64_t extent = 1, stride = 0;
};

// True if a stride of so many elements is one that a tensor map may have.
bool IsMapAligned(int64_t elements, DType type);

// Makes a map; dims[0] is the contiguous one. A dim of extent 1 may have any stride; the driver
// wants a legal one.
Result<TensorMapSpec> MakeMap(const graph::Tensor& t, TensorMapSpec::Kind kind,
                              const std::vector<MapDim>& dims);

// An error unless a store by the map leaves all else alone. It writes whole pieces of 16 bytes, as
// was seen on an H100, and behind rows that end within one lies a gap that may be somebody else's.
Status CheckStores(const TensorMapSpec& map, const graph::Tensor& t);

// True if dims of a tensor are as one of the innermost's stride: each stride is the product of the
// extents inside it.
bool IsLinear(const graph::Tensor& t, const std::vector<int64_t>& dims_innermost_first);

// The stride of the innermost of these dims that has more than one element.
int64_t LinearStride(const graph::Tensor& t, const std::vector<int64_t>& dims_innermost_first);

}  // namespace kiln::compiler
