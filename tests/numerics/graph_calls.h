// Graphs and tensors for the tests of cudnn_gnn_ops.h.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "tests/support/legacy_run.h"

namespace kiln::testing {

// A graph in compressed columns. Edge e, by its place, goes from indices[e]; tables of edges have
// it in Row(e).
struct Csc {
  int64_t sources = 0, destinations = 0;
  std::vector<int64_t> offsets, indices, rows;
  bool is_wide = false;  // lists of 64 bits

  int64_t edges() const { return std::ssize(indices); }
  int64_t Row(int64_t e) const { return rows.empty() ? e : rows[static_cast<size_t>(e)]; }
  int64_t Source(int64_t e) const { return indices[static_cast<size_t>(e)]; }
  // body(n, e) for every edge of every destination, in order.
  template <class Body>
  void EachEdge(Body&& body) const {
    for (int64_t n = 0; n < destinations; ++n)
      for (int64_t e = offsets[static_cast<size_t>(n)]; e < offsets[static_cast<size_t>(n + 1)];
           ++e)
        body(n, e);
  }
  std::string Text() const {
    return fmt::format("{} sources, {} destinations, {} edges{}{}", sources, destinations, edges(),
                       rows.empty() ? "" : " in other rows", is_wide ? ", 64 bits" : "");
  }
};

// Nodes without edges, with one, and with many; some edges twice, and some from a node to itself.
inline Csc RandomCsc(uint64_t seed, int64_t sources, int64_t destinations, int64_t most,
                     bool has_rows, bool is_wide) {
  std::mt19937_64 random(seed);
  const auto below = [&](int64_t n) {
    return static_cast<int64_t>(random() % static_cast<uint64_t>(n));
  };
  Csc g = {.sources = sources, .destinations = destinations, .offsets = {0}, .is_wide = is_wide};
  for (int64_t n = 0; n < destinations; ++n) {
    const int64_t degree = below(4) == 0 ? 0 : below(5) == 0 ? most : below(most + 1);
    for (int64_t k = 0; k < degree; ++k) {
      const bool repeats = k > 0 && below(6) == 0;
      const bool loops = n < sources && below(6) == 0;
      g.indices.push_back(repeats ? g.indices.back() : loops ? n : below(sources));
    }
    g.offsets.push_back(g.edges());
  }
  if (!has_rows) return g;
  g.rows.resize(g.indices.size());
  std::iota(g.rows.begin(), g.rows.end(), 0);
  std::shuffle(g.rows.begin(), g.rows.end(), random);
  return g;
}

// A tensor of the device between guards; without values it begins as poison.
class Tensor {
 public:
  Tensor(Device& device, cudnnDataType_t type, const oracle::Dims& dims,
         const std::vector<double>* values = nullptr)
      : device_(device),
        before_(oracle::Image::Poisoned(
            type == CUDNN_DATA_INT64 ? oracle::DType::kI64 : ElementOf(type), dims, Packed(dims),
            7)) {
    if (values != nullptr) before_.Store(*values);
    buffer_.emplace(device, before_.bytes.size());
    device.CopyIn(buffer_->data(), before_.bytes.data(), before_.bytes.size());
  }
  void* data() const { return buffer_->data() + oracle::Image::kGuard; }
  std::vector<double> values() const { return before_.Load(); }  // before the call
  std::vector<double> After() const { return Download().Load(); }
  std::string Check(const std::vector<oracle::Value>& expected) const {
    const oracle::Image after = Download();
    if (std::string error = oracle::CheckGaps(before_, after); !error.empty()) return error;
    return oracle::Compare({before_.dims, expected}, after).error;
  }
  std::string CheckUnchanged() const { return oracle::CheckUnchanged(before_, Download()); }

 private:
  static oracle::Dims Packed(const oracle::Dims& dims) {
    oracle::Dims strides(dims.size(), 1);
    for (size_t d = dims.size(); d-- > 1;) strides[d - 1] = strides[d] * dims[d];
    return strides;
  }
  oracle::Image Download() const {
    oracle::Image after = before_;
    device_.CopyOut(after.bytes.data(), buffer_->data(), after.bytes.size());
    return after;
  }

  Device& device_;
  oracle::Image before_;
  std::optional<Buffer> buffer_;
};

// The graph in a device's memory.
class DeviceCsc {
 public:
  DeviceCsc(Device& device, const Csc& g, bool is_reversed) {
    const cudnnDataType_t type = g.is_wide ? CUDNN_DATA_INT64 : CUDNN_DATA_INT32;
    const auto add = [&](const std::vector<int64_t>& list) {
      const std::vector<double> values(list.begin(), list.end());
      lists_.push_back(
          std::make_unique<Tensor>(device, type, oracle::Dims{std::ssize(list)}, &values));
      return lists_.back()->data();
    };
    graph_.cscOffsets = add(g.offsets);
    graph_.cscIndices = add(g.indices);
    if (!g.rows.empty()) graph_.mapCscToCoo = add(g.rows);
    graph_.nSrcNodes = g.sources;
    graph_.nDstNodes = g.destinations;
    graph_.nIndices = g.edges();
    graph_.idxType = type;
    if (!is_reversed) return;
    std::vector<int64_t> offsets = {0}, rows;
    for (int64_t s = 0; s < g.sources; ++s) {
      g.EachEdge([&](int64_t, int64_t e) {
        if (g.Source(e) == s) rows.push_back(g.Row(e));
      });
      offsets.push_back(std::ssize(rows));
    }
    graph_.cscRevOffsets = add(offsets);
    graph_.mapRevToCoo = add(rows);
  }
  const cudnnGnnCscGraph_t* get() const { return &graph_; }
  std::string CheckUnchanged() const {
    std::string errors;
    for (const auto& list : lists_) errors += list->CheckUnchanged();
    return errors;
  }

 private:
  std::vector<std::unique_ptr<Tensor>> lists_;
  cudnnGnnCscGraph_t graph_ = {};
};

// Multiples of 1/`steps` between -2 and 2.
inline std::vector<double> Numbers(uint64_t seed, int64_t count, int steps = 16) {
  std::mt19937_64 random(seed);
  std::vector<double> values(static_cast<size_t>(count));
  for (double& v : values)
    v = static_cast<double>(static_cast<int64_t>(random() % static_cast<uint64_t>(4 * steps + 1)) -
                            2 * steps) /
        steps;
  return values;
}

// The last failure of this thread in words.
inline std::string WordsOf(void* library) {
  LegacyClient client(library);
  char text[400] = "";
  client.LastError(text, sizeof text);
  return text;
}

}  // namespace kiln::testing
