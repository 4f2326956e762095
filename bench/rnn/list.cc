#include "bench/rnn/list.h"

#include <fmt/format.h>

#include <initializer_list>

namespace kiln::bench {
namespace {

constexpr auto kF16 = CUDNN_DATA_HALF, kBf16 = CUDNN_DATA_BFLOAT16, kF32 = CUDNN_DATA_FLOAT;
constexpr auto kLstm = CUDNN_LSTM, kGru = CUDNN_GRU, kTanh = CUDNN_RNN_TANH;

constexpr RecurrentShape kBaseline[] = {
    {kLstm, kF16, 100, 64, 1024, 1024, 2},
    {kLstm, kF16, 50, 64, 512, 512},
    {kLstm, kF16, 1000, 16, 256, 256},
    {kLstm, kF16, 25, 32, 1536, 1536},
    {kLstm, kF16, 150, 128, 512, 512, 4},
    {kLstm, kF16, 256, 1, 1024, 1024},
    {kLstm, kF16, 64, 256, 2048, 2048},
    {kLstm, kF16, 50, 64, 1792, 1792},
    {kLstm, kF16, 1500, 32, 1024, 1024},
    {kLstm, kF16, 128, 64, 256, 256, 2},
    {kLstm, kF32, 100, 64, 1024, 1024, 2},
    {kLstm, kF32, 50, 64, 512, 512},
    {kLstm, kF32, 1000, 16, 256, 256},
    {kLstm, kF32, 25, 32, 1536, 1536},
    {kLstm, kF32, 150, 128, 512, 512, 4},
    {kLstm, kF32, 256, 1, 1024, 1024},
    {kLstm, kF32, 64, 256, 2048, 2048},
    {kLstm, kF32, 50, 64, 1792, 1792},
    {kLstm, kF32, 1500, 32, 1024, 1024},
    {kLstm, kF32, 128, 64, 256, 256, 2},
    {kGru, kF16, 100, 64, 1024, 1024, 2},
    {kGru, kF16, 50, 64, 512, 512},
    {kGru, kF16, 1000, 16, 256, 256},
    {kGru, kF16, 25, 32, 1536, 1536},
    {kGru, kF16, 1500, 32, 2816, 2816},
    {kTanh, kF16, 100, 64, 1024, 1024},
    {kLstm, kF16, 128, 32, 512, 512, 2, 0, true},
    {kLstm, kF16, 100, 64, 1024, 1024, 2, 512},
    {kLstm, kBf16, 100, 64, 1024, 1024, 2},
};

constexpr RecurrentShape kTypes[] = {
    {kGru, kBf16, 100, 64, 1024, 1024},
    {kTanh, kBf16, 100, 64, 1024, 1024},
    {kLstm, kBf16, 1000, 16, 256, 256},
    {kGru, kF32, 100, 64, 1024, 1024, 2},
    {kGru, kF32, 50, 64, 512, 512},
    {kTanh, kF32, 100, 64, 1024, 1024},
    {kLstm, kF32, 50, 64, 512, 512, 1, 0, false, true},
    {kLstm, kF32, 1000, 16, 256, 256, 1, 0, false, true},
    {kGru, kF32, 50, 64, 512, 512, 1, 0, false, true},
};

struct DeepBench {
  cudnnRNNMode_t cell;
  int hidden, steps;
  std::initializer_list<int> batches;
};
const DeepBench kDeepBench[] = {
    {kTanh, 1760, 50, {16, 32, 64, 128}},
    {kTanh, 2048, 50, {16, 32, 64, 128}},
    {kTanh, 2560, 50, {16, 32, 64, 128}},
    {kLstm, 512, 25, {1, 4, 16, 32, 64, 128}},
    {kLstm, 1024, 25, {1, 4, 16, 32, 64, 128}},
    {kLstm, 2048, 25, {1, 4, 16, 32, 64, 128}},
    {kLstm, 4096, 25, {16, 32, 64, 128}},
    {kLstm, 1536, 50, {1, 4, 8, 16, 32}},
    {kLstm, 256, 150, {1, 4, 16, 32, 64}},
    {kGru, 2816, 375, {1, 4, 32}},
    {kGru, 2048, 375, {1, 4, 32}},
    {kGru, 1536, 375, {1, 4, 32}},
    {kGru, 2560, 375, {1, 4, 32}},
    {kGru, 2048, 1500, {32}},
    {kGru, 1536, 1500, {32}},
    {kGru, 2560, 1500, {32}},
    {kGru, 512, 1, {32}},
    {kGru, 1024, 1500, {1, 4, 32, 64}},
};

std::string TextOf(const RecurrentShape& s) {
  const char* const cell = s.cell == kLstm ? "lstm" : s.cell == kGru ? "gru" : "tanh";
  const char* const type = s.type == kF16    ? "f16"
                           : s.type == kBf16 ? "bf16"
                           : s.exact         ? "f32"
                                             : "tf32";
  std::string text = fmt::format("{}_{}_T{}_B{}_H{}", cell, type, s.steps, s.batch, s.hidden);
  if (s.input != s.hidden) text += fmt::format("_I{}", s.input);
  if (s.projected != s.hidden) text += fmt::format("_P{}", s.projected);
  if (s.layers > 1) text += fmt::format("_L{}", s.layers);
  return s.bidirectional ? text + "_both_directions" : text;
}

}  // namespace

std::vector<NamedShape> RecurrentShapes() {
  std::vector<NamedShape> all;
  const auto add = [&](const char* family, RecurrentShape shape) {
    if (shape.projected == 0) shape.projected = shape.hidden;
    all.push_back({.name = fmt::format("{}/{}", family, TextOf(shape)), .shape = shape});
  };
  for (const RecurrentShape& shape : kBaseline) add("baseline", shape);
  for (const RecurrentShape& shape : kTypes) add("types", shape);
  for (const DeepBench& row : kDeepBench) {
    for (const int batch : row.batches)
      add("deepbench", {.cell = row.cell,
                        .type = kF16,
                        .steps = row.steps,
                        .batch = batch,
                        .input = row.hidden,
                        .hidden = row.hidden,
                        .inference_alone = batch <= 4});
  }
  return all;
}

}  // namespace kiln::bench
