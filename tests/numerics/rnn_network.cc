#include "tests/numerics/rnn_network.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <limits>

namespace kiln::testing {
namespace {

constexpr double kFill = 7.5, kPoison = 123;
constexpr uint8_t kGuardByte = 0xA5;

oracle::DType TypeOf(cudnnDataType_t type) {
  switch (type) {
    case CUDNN_DATA_DOUBLE:
      return oracle::DType::kF64;
    case CUDNN_DATA_HALF:
      return oracle::DType::kF16;
    case CUDNN_DATA_BFLOAT16:
      return oracle::DType::kBF16;
    default:
      return oracle::DType::kF32;
  }
}

cudnnTensorDescriptor_t StateDescriptor(cudnnDataType_t type, int rank, int layers, int batch,
                                        int width) {
  std::vector<int> dims(static_cast<size_t>(rank), 1), strides(static_cast<size_t>(rank), 1);
  dims[0] = layers;
  dims[1] = batch;
  dims[2] = width;
  strides[0] = batch * width;
  strides[1] = width;
  cudnnTensorDescriptor_t desc = nullptr;
  RNN_CALL(cudnnCreateTensorDescriptor, &desc);
  EXPECT_EQ(RNN_CALL(cudnnSetTensorNdDescriptor, desc, type, rank, dims.data(), strides.data()),
            CUDNN_STATUS_SUCCESS);
  return desc;
}

// KILN_TEST_CUDNN, else the library that a bundle has beside its programs.
std::string LibraryPath() {
  if (const char* const named = std::getenv("KILN_TEST_CUDNN")) return named;
  std::error_code ignored;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", ignored);
  return (self.parent_path() / fmt::format("../lib/libcudnn.so.{}", CUDNN_MAJOR)).string();
}

}  // namespace

void* RnnLibrary() {
  static void* const library = [] {
    const std::string path = LibraryPath();
    void* const opened = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (opened != nullptr) return opened;
    fmt::print(stderr, "no library to test: {}\n", dlerror());
    std::abort();
  }();
  return library;
}

std::string RnnConfig::Text() const {
  std::string text = fmt::format(
      "cell {} bias {} dir {} input mode {} type {} layout {} algo {} T {} B {} I {} H {} P {} L "
      "{}",
      static_cast<int>(cell), static_cast<int>(bias), static_cast<int>(direction),
      static_cast<int>(input_mode), static_cast<int>(type), static_cast<int>(layout),
      static_cast<int>(algo), steps, batch, input, hidden, projected, layers);
  for (const int n : lengths) text += fmt::format(" {}", n);
  return text;
}

RnnMemory::RnnMemory(Device& device, oracle::DType type, int64_t elements)
    : device_(&device),
      type_(type),
      elements_(elements),
      buffer_(std::make_unique<Buffer>(
          device, static_cast<size_t>(elements) * static_cast<size_t>(oracle::Row(type).bytes) +
                      2 * kGuard)) {
  const std::vector<uint8_t> guard(Bytes().size() + 2 * kGuard, kGuardByte);
  device.CopyIn(buffer_->data(), guard.data(), guard.size());
}

void RnnMemory::Put(const std::vector<double>& values) {
  ASSERT_EQ(static_cast<int64_t>(values.size()), elements_);
  std::vector<uint8_t> bytes(values.size() * static_cast<size_t>(oracle::Row(type_).bytes));
  for (size_t i = 0; i < values.size(); ++i)
    oracle::EncodeAt(type_, values[i], bytes.data(), static_cast<int64_t>(i));
  device_->CopyIn(data(), bytes.data(), bytes.size());
}

std::vector<uint8_t> RnnMemory::Bytes() const {
  std::vector<uint8_t> bytes(static_cast<size_t>(elements_) *
                             static_cast<size_t>(oracle::Row(type_).bytes));
  device_->CopyOut(bytes.data(), buffer_->data() + kGuard, bytes.size());
  return bytes;
}

std::vector<double> RnnMemory::Get() const {
  const std::vector<uint8_t> bytes = Bytes();
  std::vector<double> values(static_cast<size_t>(elements_));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = oracle::DecodeAt(type_, bytes.data(), static_cast<int64_t>(i));
  return values;
}

bool RnnMemory::GuardsHold() const {
  const size_t inside = Bytes().size();
  std::vector<uint8_t> all(inside + 2 * kGuard);
  device_->CopyOut(all.data(), buffer_->data(), all.size());
  const auto holds = [](uint8_t byte) { return byte == kGuardByte; };
  return std::all_of(all.begin(), all.begin() + kGuard, holds) &&
         std::all_of(all.end() - kGuard, all.end(), holds);
}

RnnNetworkRun::RnnNetworkRun(Device& device, cudnnHandle_t handle, const RnnConfig& c)
    : config(c), device_(device), handle_(handle), random_(c.seed * 2654435761u + 1) {
  SetDescriptors();
  SetOperands();
}

RnnNetworkRun::~RnnNetworkRun() {
  RNN_CALL(cudnnDestroyRNNDescriptor, rnn);
  RNN_CALL(cudnnDestroyRNNDataDescriptor, x_desc);
  RNN_CALL(cudnnDestroyRNNDataDescriptor, y_desc);
  RNN_CALL(cudnnDestroyTensorDescriptor, h_desc);
  RNN_CALL(cudnnDestroyTensorDescriptor, c_desc);
}

void RnnNetworkRun::SetDescriptors() {
  const RnnConfig& c = config;
  const cudnnDataType_t math = c.type == CUDNN_DATA_DOUBLE ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT;
  RNN_CALL(cudnnCreateRNNDescriptor, &rnn);
  EXPECT_EQ(
      RNN_CALL(cudnnSetRNNDescriptor_v8, rnn, c.algo, c.cell, c.bias, c.direction, c.input_mode,
               c.type, math, c.tf32 ? CUDNN_DEFAULT_MATH : CUDNN_FMA_MATH, c.input, c.hidden,
               c.projected, c.layers, c.dropout, CUDNN_RNN_PADDED_IO_ENABLED),
      CUDNN_STATUS_SUCCESS);
  if (c.clips) {
    EXPECT_EQ(RNN_CALL(cudnnRNNSetClip_v8, rnn, CUDNN_RNN_CLIP_MINMAX,
                       c.clip_keeps_nan ? CUDNN_PROPAGATE_NAN : CUDNN_NOT_PROPAGATE_NAN, c.clip_low,
                       c.clip_high),
              CUDNN_STATUS_SUCCESS);
  }
  std::vector<int> lengths;
  for (int b = 0; b < c.batch; ++b) lengths.push_back(c.Length(b));
  std::vector<uint8_t> fill(8);
  oracle::EncodeAt(TypeOf(c.type), kFill, fill.data(), 0);
  const auto set = [&](cudnnRNNDataDescriptor_t* desc, int width) {
    RNN_CALL(cudnnCreateRNNDataDescriptor, desc);
    EXPECT_EQ(RNN_CALL(cudnnSetRNNDataDescriptor, *desc, c.type, c.layout, c.steps, c.batch, width,
                       lengths.data(), c.is_filled ? fill.data() : nullptr),
              CUDNN_STATUS_SUCCESS);
  };
  set(&x_desc, c.input);
  set(&y_desc, c.projected * c.Directions());
  const int layers = c.layers * c.Directions();
  h_desc = StateDescriptor(c.type, c.state_rank, layers, c.batch, c.projected);
  c_desc = StateDescriptor(c.type, c.state_rank, layers, c.batch, c.hidden);
  EXPECT_EQ(RNN_CALL(cudnnGetRNNWeightSpaceSize, handle_, rnn, &weight_bytes),
            CUDNN_STATUS_SUCCESS);
  EXPECT_EQ(RNN_CALL(cudnnGetRNNTempSpaceSizes, handle_, rnn, CUDNN_FWD_MODE_TRAINING, x_desc,
                     &work_bytes, &reserve_bytes),
            CUDNN_STATUS_SUCCESS);
  size_t inference_bytes = 0;
  EXPECT_EQ(RNN_CALL(cudnnGetRNNTempSpaceSizes, handle_, rnn, CUDNN_FWD_MODE_INFERENCE, x_desc,
                     &inference_bytes, nullptr),
            CUDNN_STATUS_SUCCESS);
  work_bytes = std::max(work_bytes, inference_bytes);
}

std::vector<double> RnnNetworkRun::Random(int64_t n, double scale) {
  std::vector<double> values(static_cast<size_t>(n));
  for (double& value : values) {
    random_ = random_ * 6364136223846793005u + 1442695040888963407u;
    const double unit = static_cast<double>(random_ >> 40) / static_cast<double>(1 << 24);
    value = oracle::Round(TypeOf(config.type), (2 * unit - 1) * scale);
  }
  return values;
}

int64_t RnnNetworkRun::Rows() const {
  if (config.layout != CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_PACKED)
    return int64_t{config.steps} * config.batch;
  int64_t rows = 0;
  for (int b = 0; b < config.batch; ++b) rows += config.Length(b);
  return rows;
}

std::vector<double> RnnNetworkRun::Stored(const std::vector<double>& rows, int width,
                                          double padding) const {
  const RnnConfig& c = config;
  std::vector<double> stored(static_cast<size_t>(Rows() * width), padding);
  int64_t packed = 0;
  for (int t = 0; t < c.steps; ++t) {
    for (int b = 0; b < c.batch; ++b) {
      if (t >= c.Length(b)) continue;
      int64_t row = int64_t{t} * c.batch + b;
      const int64_t from = row * width;
      if (c.layout == CUDNN_RNN_DATA_LAYOUT_BATCH_MAJOR_UNPACKED) row = int64_t{b} * c.steps + t;
      if (c.layout == CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_PACKED) row = packed++;
      std::copy_n(rows.begin() + from, width, stored.begin() + row * width);
    }
  }
  return stored;
}

void RnnNetworkRun::SetOperands() {
  const RnnConfig& c = config;
  const oracle::DType type = TypeOf(c.type);
  using Cell = oracle::RnnNetwork::Cell;
  constexpr Cell kCells[] = {Cell::kRelu, Cell::kTanh, Cell::kLstm, Cell::kGru};
  network.cell = kCells[c.cell];
  network.input_bias = c.bias == CUDNN_RNN_SINGLE_INP_BIAS || c.bias == CUDNN_RNN_DOUBLE_BIAS;
  network.recurrent_bias = c.bias == CUDNN_RNN_SINGLE_REC_BIAS || c.bias == CUDNN_RNN_DOUBLE_BIAS;
  network.layers = c.layers;
  network.directions = c.Directions();
  network.input = c.input;
  network.hidden = c.hidden;
  network.projected = c.projected;
  network.skip_input = c.input_mode == CUDNN_SKIP_INPUT;
  network.clips = c.clips && c.IsLstm();
  network.clip_keeps_nan = c.clip_keeps_nan;
  network.clip_low = oracle::Round(oracle::DType::kF32, c.clip_low);
  network.clip_high = oracle::Round(oracle::DType::kF32, c.clip_high);
  network.fill = c.is_filled ? kFill : 0;
  network.round = [type](double value) { return oracle::Round(type, value); };
  operands.steps = c.steps;
  operands.batch = c.batch;
  for (int b = 0; b < c.batch; ++b) operands.lengths.push_back(c.Length(b));
  const int64_t states = int64_t{c.layers} * c.Directions() * c.batch;
  const int out = c.projected * c.Directions();
  const auto cells = static_cast<int64_t>(int64_t{c.steps} * c.batch);
  operands.x = Random(cells * c.input, 1);
  operands.w = Random(oracle::RnnWeights(network), 1 / std::sqrt(1.0 + c.hidden));
  if (c.has_hx) operands.hx = Random(states * c.projected, 1);
  if (c.has_cx && c.IsLstm()) operands.cx = Random(states * c.hidden, 1);
  slopes.dy = Random(cells * out, 1);
  if (c.has_dhy) slopes.dhy = Random(states * c.projected, 1);
  if (c.IsLstm() && c.has_dcy) slopes.dcy = Random(states * c.hidden, 1);
  before = Random(oracle::RnnWeights(network), 1);
  const auto make = [&](int64_t elements, double value) {
    RnnMemory memory(device_, type, elements);
    memory.Put(std::vector<double>(static_cast<size_t>(elements), value));
    return memory;
  };
  const double nan = std::numeric_limits<double>::quiet_NaN();
  x = make(Rows() * c.input, 0);
  x.Put(Stored(operands.x, c.input, nan));
  dy = make(Rows() * out, 0);
  dy.Put(Stored(slopes.dy, out, nan));
  y = make(Rows() * out, kPoison);
  dx = make(Rows() * c.input, kPoison);
  w = make(oracle::RnnWeights(network), 0);
  w.Put(operands.w);
  dw = make(oracle::RnnWeights(network), 0);
  dw.Put(before);
  for (RnnMemory* state : {&hx, &hy, &dhy, &dhx}) *state = make(states * c.projected, kPoison);
  for (RnnMemory* state : {&cx, &cy, &dcy, &dcx}) *state = make(states * c.hidden, kPoison);
  if (c.has_hx) hx.Put(operands.hx);
  if (!operands.cx.empty()) cx.Put(operands.cx);
  if (!slopes.dhy.empty()) dhy.Put(slopes.dhy);
  if (!slopes.dcy.empty()) dcy.Put(slopes.dcy);
  work = RnnMemory(device_, oracle::DType::kI8, static_cast<int64_t>(work_bytes));
  reserve = RnnMemory(device_, oracle::DType::kI8, static_cast<int64_t>(reserve_bytes));
}

void RnnNetworkRun::Poison() {
  for (RnnMemory* const result : {&y, &hy, &cy, &dx, &dhx, &dcx})
    result->Put(std::vector<double>(static_cast<size_t>(result->elements()), kPoison));
}

RnnPointers::RnnPointers(const RnnNetworkRun& run) {
  const RnnConfig& c = run.config;
  const auto at = [](bool is_there, const RnnMemory& memory) {
    return is_there ? memory.data() : nullptr;
  };
  hx = at(c.has_hx, run.hx);
  cx = at(c.has_cx, run.cx);
  hy = at(c.has_hy, run.hy);
  cy = at(c.has_cy, run.cy);
  dhy = at(c.has_dhy, run.dhy);
  dcy = at(c.has_dcy, run.dcy);
  dhx = at(c.has_dhx, run.dhx);
  dcx = at(c.has_dcx, run.dcx);
}

cudnnStatus_t RnnNetworkRun::Forward(cudnnForwardMode_t mode) {
  const bool trains = mode == CUDNN_FWD_MODE_TRAINING;
  const RnnPointers p(*this);
  return RNN_CALL(cudnnRNNForward, handle_, rnn, mode, nullptr, x_desc, x.data(), y_desc, y.data(),
                  h_desc, p.hx, p.hy, c_desc, p.cx, p.cy, weight_bytes, w.data(), work_bytes,
                  work.data(), trains ? reserve_bytes : 0, trains ? reserve.data() : nullptr);
}

cudnnStatus_t RnnNetworkRun::BackwardData() {
  const RnnPointers p(*this);
  return RNN_CALL(cudnnRNNBackwardData_v8, handle_, rnn, nullptr, y_desc, y.data(), dy.data(),
                  x_desc, dx.data(), h_desc, p.hx, p.dhy, p.dhx, c_desc, p.cx, p.dcy, p.dcx,
                  weight_bytes, w.data(), work_bytes, work.data(), reserve_bytes, reserve.data());
}

cudnnStatus_t RnnNetworkRun::BackwardWeights(cudnnWgradMode_t mode) {
  return RNN_CALL(cudnnRNNBackwardWeights_v8, handle_, rnn, mode, nullptr, x_desc, x.data(), h_desc,
                  RnnPointers(*this).hx, y_desc, y.data(), weight_bytes, dw.data(), work_bytes,
                  work.data(), reserve_bytes, reserve.data());
}

// Roundings of states and gates, which the recurrence carries on.
double RnnNetworkRun::Tolerance() const {
  switch (config.type) {
    case CUDNN_DATA_DOUBLE:
      return 1e-11;
    case CUDNN_DATA_HALF:
      return 1e-2;
    case CUDNN_DATA_BFLOAT16:
      return 6e-2;
    default:
      return config.tf32 ? 1e-2 : 1e-4;
  }
}

std::string RnnNetworkRun::Compare(const std::string& name, const RnnMemory& memory,
                                   const std::vector<double>& expected) const {
  const std::vector<double> got = memory.Get();
  if (!memory.GuardsHold()) return name + ": memory around it was written";
  if (got.size() != expected.size())
    return fmt::format("{} has {} elements, {} are expected", name, got.size(), expected.size());
  double largest = 0;
  for (const double value : expected)
    if (std::isfinite(value)) largest = std::max(largest, std::abs(value));
  for (size_t i = 0; i < got.size(); ++i) {
    if (std::isnan(expected[i]) && std::isnan(got[i])) continue;
    if (!(std::abs(got[i] - expected[i]) <= Tolerance() * std::max(largest, 1.0)))
      return fmt::format("{}[{}] is {}, {} is right", name, i, got[i], expected[i]);
  }
  return {};
}

std::string RnnNetworkRun::CheckForward() const {
  const oracle::RnnResults expected = oracle::RunRnn(network, operands);
  const int out = config.projected * config.Directions();
  std::string error = Compare("y", y, Stored(expected.y, out, network.fill));
  if (error.empty() && config.has_hy) error = Compare("hy", hy, expected.hy);
  if (error.empty() && config.has_cy && config.IsLstm()) error = Compare("cy", cy, expected.cy);
  if (error.empty() && !config.IsLstm() && cy.Get()[0] != kPoison) error = "cy was written";
  return error;
}

std::string RnnNetworkRun::CheckBackwardData() const {
  const oracle::RnnGradients expected = oracle::RunRnnBackward(network, operands, slopes);
  std::string error = Compare("dx", dx, Stored(expected.dx, config.input, network.fill));
  if (error.empty() && config.has_dhx) error = Compare("dhx", dhx, expected.dhx);
  if (error.empty() && config.IsLstm() && config.has_dcx) error = Compare("dcx", dcx, expected.dcx);
  return error;
}

std::string RnnNetworkRun::CheckWeightGradients(double times) const {
  std::vector<double> expected = oracle::RunRnnBackward(network, operands, slopes).dw;
  for (size_t i = 0; i < expected.size(); ++i)
    expected[i] = (times == 0 ? expected[i] : before[i] + times * expected[i]);
  return Compare("dw", dw, expected);
}

}  // namespace kiln::testing
