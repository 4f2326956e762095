// Generator that random_graph.cc makes graphs with: one function an op of the table, each adding a
// node whose operands are taken from what is there already or made anew.
#pragma once

#include <initializer_list>
#include <random>
#include <utility>
#include <vector>

#include "ir/graph/builder.h"
#include "ir/graph/ops.h"
#include "tests/support/random_graph.h"

namespace kiln::graph {

class Generator {
 public:
  Generator(uint64_t seed, const RandomGraphOptions& options)
      : random_(seed), options_(options), builder_("random") {}

  Graph Run();

  void AddPointwise();
  void AddReduction();
  void AddGenStats();
  void AddBnFinalize();
  void AddBnBwdWeights();
  void AddNormForward();
  void AddNormBackward();
  void AddConvFprop() { AddConv(GraphOp::kConvFprop); }
  void AddConvDgrad() { AddConv(GraphOp::kConvDgrad); }
  void AddConvWgrad() { AddConv(GraphOp::kConvWgrad); }
  void AddMatmul();
  void AddResampleFwd() { AddResample(true); }
  void AddResampleBwd() { AddResample(false); }
  void AddBlockScaleDequantize();
  void AddBlockScaleQuantize();
  void AddRng();
  void AddExpandBandMatrix();
  void AddContractBandMatrix();
  void AddMoeGroupedMatmul();
  void AddRnnForward() { AddRnn(GraphOp::kRnnForward); }
  void AddRnnBackwardData() { AddRnn(GraphOp::kRnnBackwardData); }
  void AddRnnBackwardWeights() { AddRnn(GraphOp::kRnnBackwardWeights); }
  void AddRecurrence() { AddLoop(false); }
  void AddRecurrenceGrad() { AddLoop(true); }
  void AddCtcLoss();
  void AddMap();
  void AddIota();
  void AddReduce();
  void AddReshape();
  void AddTranspose();
  void AddSlice();
  void AddConcat();
  void AddSdpaFwd() { AddSdpa(GraphOp::kSdpaFwd); }
  void AddSdpaBwd() { AddSdpa(GraphOp::kSdpaBwd); }
  void AddPagedCacheLoad();
  void AddRaggedLoad() { AddRagged(true); }
  void AddRaggedStore() { AddRagged(false); }
  void AddScatter();
  void AddScatterAdd();
  void AddGather();
  void AddSegmentReduce();
  void AddSegmentIds();
  void AddPeerReduce();
  void AddSignalSet();
  void AddSignalWait();

 private:
  // Uniform in 0..n-1; std::uniform_int_distribution differs between libraries.
  int64_t Below(int64_t n) { return static_cast<int64_t>(random_() % static_cast<uint64_t>(n)); }
  bool Chance(int percent) { return Below(100) < percent; }
  template <class T>
  T Pick(std::initializer_list<T> choices) {
    return *(choices.begin() + Below(static_cast<int64_t>(choices.size())));
  }

  void AddConv(GraphOp op);
  void AddResample(bool forward);
  TensorId MaxPool(TensorId image, const Dims& y, ResampleAttrs a);
  void AddSdpa(GraphOp op);
  // Recurrent networks (random_recurrence.cc).
  struct RandomNetwork {
    RnnAttrs attrs = {};
    DType type = DType::kF32;
    int64_t steps = 1, batch = 1, input = 1;
  };
  RandomNetwork DrawNetwork();
  TensorId MaybeLengths(const RandomNetwork& n);
  TensorId MaybeStates(const RandomNetwork& n, int64_t pseudo_layers, bool cells);
  void AddRnn(GraphOp op);
  void AddLoop(bool gradient);
  void AddRagged(bool load);
  std::pair<TensorId, TensorId> InPlace(int64_t extent, int64_t rank, DType dtype);
  TensorId VirtualOf(const char* name, Dims dims, DType dtype);
  DType NumberType();
  DType ByteType();
  DType BoolInMemory();  // of which no two share a byte, so that one may be written alone
  Dims NormStats(const Dims& x, NormMode mode);
  void AddPeers(std::vector<TensorId>& inputs);
  // Memory that is not a tensor's own order (random_layouts.cc).
  Dims SharedStrides(const Dims& dims);
  static bool HasVectors(const Dims& dims);
  TensorId FromVectors(const Dims& dims, DType dtype);
  void StoreInVectors();
  TensorId NewResult(const Dims& dims);
  Dims RandomDims(int64_t rank);
  Dims RandomStrides(const Dims& dims);
  TensorId NewTensor(Dims dims, DType dtype);
  TensorId Number(const Dims* dims = nullptr, int64_t min_rank = 1, int64_t max_rank = 5);
  TensorId Broadcastable(const Dims& dims, bool boolean);
  TensorId Condition(const Dims& dims);
  Dims ChannelsInnermost(const Dims& dims);
  Dims ReducedDims(const Dims& dims);
  Dims BlocksOf(Dims& dims);
  double Factor() { return Pick({1.0, 0.5, -2.0, 3.0}); }
  int64_t Extent(int64_t most);
  DType Compute();
  ResultOptions AnyResult(Dims dims = {});
  TensorId AddNode(GraphOp op, std::vector<TensorId> inputs, std::vector<TensorId> outputs,
                   DType compute, Attrs attrs);
  void FinishTensors();

  const Tensor& At(TensorId id) { return builder_.graph()[id]; }

  std::mt19937_64 random_;
  RandomGraphOptions options_;
  GraphBuilder builder_;
};

}  // namespace kiln::graph
