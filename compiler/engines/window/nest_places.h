// NestPlaces: the places of the values of a WindowNest, as expressions of a thread's tile. Each
// base and each condition is named once; equal places have equal expressions, since values are
// known by them.
#pragma once

#include <map>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "compiler/engines/window/links.h"
#include "compiler/kernel/vectors.h"

namespace kiln::compiler {

class NestPlaces {
 public:
  using Place = WindowNest::Place;

  // `lead`: the tensor whose tiles threads have; `tile_at`: the tile's number along each axis, and
  // the place along other dims.
  NestPlaces(KernelBuilder& b, const WindowNest& nest, graph::TensorId lead, Index tile_at)
      : b_(b), g_(b.graph()), nest_(nest), lead_(lead), tile_at_(std::move(tile_at)) {}

  size_t inner() const { return nest_.axes.size() - 1; }
  Index IndexOf(tile::Block& out, graph::TensorId id, const Place& at);
  // A condition: a place, or all of a row of them, lies in the tensor; null for always.
  tile::Expr Inside(tile::Block& out, graph::TensorId id, const Place& at, int count = 1);

 private:
  const tile::Expr& Base(tile::Block& out, size_t axis, int scale);
  tile::Expr InsideAxis(tile::Block& out, graph::TensorId id, size_t k, int offset, int count);

  KernelBuilder& b_;
  const graph::Graph& g_;
  const WindowNest& nest_;
  const graph::TensorId lead_;
  const Index tile_at_;
  std::map<std::pair<size_t, int>, tile::Expr> bases_;
  std::map<WindowNest::Value, tile::Expr> inside_;
  std::map<std::tuple<size_t, int, int, int64_t>, tile::Expr> inside_axis_;
};

// The value that a window takes for elements outside.
double PaddingValueOf(const graph::Node& window);
// The value that windows which alone read a tensor take for elements outside; nothing where others
// read it, too, or its type has no such number.
std::optional<double> PaddingOf(const graph::Graph& g, graph::TensorId id);

// Reads all values that lie in memory, and binds them at their places (nest_loads.cc).
void LoadNest(KernelBuilder& b, const WindowNest& nest, NestPlaces& places, tile::Block& out,
              ValueScope& values);
// Computes and binds the results of all windows, in order (nest_windows.cc).
void ComputeNest(KernelBuilder& b, const WindowNest& nest, NestPlaces& places, tile::Block& out,
                 ValueScope& values);

}  // namespace kiln::compiler
