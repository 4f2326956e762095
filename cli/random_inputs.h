// Values for a graph's inputs that are random, and mean something where an operation asks for that:
// offsets count up, lengths fit the data, labels fit their frames. Numbers without a meaning would
// give NaN or nothing, and a comparison of NaN with NaN finds no fault. Used by `kiln run`.
#pragma once

#include <cstdint>

#include "ir/graph/eval.h"
#include "ir/graph/graph.h"

namespace kiln::cli {

struct RandomOptions {
  uint64_t seed = 1;
  double low = -1, high = 1;  // floats are uniform in it; integers are small
};

// Values for every tensor that a caller passes; the same on every machine. Elements that share a
// place in memory (stride 0, overlapping strides) have the value of that place.
graph::TensorValues RandomInputs(const graph::Graph& graph, const RandomOptions& options);

// splitmix64: a good hash of a counter, so that an element's value depends on nothing but its
// place.
inline uint64_t Mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

}  // namespace kiln::cli
