// A part of a graph that can be checked by itself: some images of a batch, some rows of a product.
// Dims that every operation on the way treats place by place are cut together; dims that are
// summed, searched or counted along stay whole. Used by `kiln run --check-part` for graphs whose
// values do not fit into memory.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ir/graph/graph.h"

namespace kiln::cli {

struct Slice {
  graph::Graph graph;        // the same tensors, nodes and ids, with the part's extents
  std::vector<Dims> starts;  // of each tensor: where the part begins in the whole
};

// A part whose check takes `most_bytes` at most (CheckBytes), at places that the seed picks; where
// no part is so small, the smallest that there is.
Slice SliceOf(const graph::Graph& graph, int64_t most_bytes, uint64_t seed);

// The part's elements of a tensor of the whole graph, in row-major order.
std::vector<double> PartOf(const graph::Graph& whole, const Slice& slice, graph::TensorId id,
                           const std::vector<double>& values);

// The part's places in a tensor as "[3:4,0:64]", the end not included.
std::string PlacesText(const Slice& slice, graph::TensorId id);

}  // namespace kiln::cli
