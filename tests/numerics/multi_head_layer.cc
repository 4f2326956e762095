#include "tests/numerics/multi_head_layer.h"

#include <cmath>
#include <limits>

namespace kiln::testing {
namespace {

constexpr uint8_t kGuardByte = 0xc5;
constexpr double kPoison = std::numeric_limits<double>::quiet_NaN();

std::unique_ptr<Buffer> OfInts(Device& device, const std::vector<int>& values) {
  auto buffer = std::make_unique<Buffer>(device, values.size() * sizeof(int));
  device.CopyIn(buffer->data(), values.data(), values.size() * sizeof(int));
  return buffer;
}

std::unique_ptr<Buffer> Filled(Device& device, size_t bytes, uint8_t byte) {
  auto buffer = std::make_unique<Buffer>(device, bytes);
  const std::vector<uint8_t> host(bytes, byte);
  if (bytes > 0) device.CopyIn(buffer->data(), host.data(), bytes);
  return buffer;
}

}  // namespace

Vector Rounded(cudnnDataType_t type, Vector values) {
  for (double& value : values) value = oracle::Round(ElementOf(type), value);
  return values;
}

// ---- sequences

Sequences::Sequences(LegacyClient& client, Device& device, const LayerOptions& options, int batch,
                     int beam, int steps, int width, const std::vector<int>& lengths)
    : device_(device),
      type_(ElementOf(options.type)),
      batch_(batch),
      beam_(beam),
      steps_(steps),
      width_(width),
      lengths_(lengths) {
  const int extents[] = {steps, batch, beam};
  int64_t inner = width;
  for (int i = 2; i >= 0; --i) {
    strides_[options.axes[i]] = inner;
    inner *= extents[options.axes[i]];
  }
  bytes_ = static_cast<size_t>(inner) * oracle::Row(type_).bytes;
  buffer_ = std::make_unique<Buffer>(device, bytes_ + 2 * kGuard);
  desc_ = client.New<cudnnSeqDataDescriptor_t>("SeqData");
  const int dims[] = {steps, batch, beam, width};
  const cudnnSeqDataAxis_t axes[] = {static_cast<cudnnSeqDataAxis_t>(options.axes[0]),
                                     static_cast<cudnnSeqDataAxis_t>(options.axes[1]),
                                     static_cast<cudnnSeqDataAxis_t>(options.axes[2]),
                                     CUDNN_SEQDATA_VECT_DIM};
  KILN_CALL(client, cudnnSetSeqDataDescriptor, desc_, options.type, 4, dims, axes, lengths.size(),
            lengths.data(), static_cast<void*>(nullptr));
  Poison();
}

int64_t Sequences::PlaceOf(int b, int beam, int t, int i) const {
  return t * strides_[0] + b * strides_[1] + beam * strides_[2] + i;
}

void Sequences::Write(const Vector& values, bool poison_padding) {
  std::vector<uint8_t> host(bytes_ + 2 * kGuard, kGuardByte);
  size_t at = 0;
  for (int b = 0; b < batch_; ++b)
    for (int beam = 0; beam < beam_; ++beam)
      for (int t = 0; t < steps_; ++t)
        for (int i = 0; i < width_; ++i, ++at) {
          const bool is_padding = t >= lengths_[b * beam_ + beam];
          oracle::EncodeAt(type_, is_padding && poison_padding ? kPoison : values[at],
                           host.data() + kGuard, PlaceOf(b, beam, t, i));
        }
  device_.CopyIn(buffer_->data(), host.data(), host.size());
}

void Sequences::Poison() {
  Write(Vector(static_cast<size_t>(batch_) * beam_ * steps_ * width_, kPoison));
}

std::vector<uint8_t> Sequences::Download() const {
  std::vector<uint8_t> host(bytes_ + 2 * kGuard);
  device_.CopyOut(host.data(), buffer_->data(), host.size());
  return host;
}

Vector Sequences::Read() const {
  const std::vector<uint8_t> host = Download();
  Vector values;
  for (int b = 0; b < batch_; ++b)
    for (int beam = 0; beam < beam_; ++beam)
      for (int t = 0; t < steps_; ++t)
        for (int i = 0; i < width_; ++i)
          values.push_back(oracle::DecodeAt(type_, host.data() + kGuard, PlaceOf(b, beam, t, i)));
  return values;
}

std::string Sequences::CheckGuards() const {
  const std::vector<uint8_t> host = Download();
  for (size_t i = 0; i < kGuard; ++i)
    if (host[i] != kGuardByte || host[host.size() - 1 - i] != kGuardByte)
      return "memory around the sequences was written";
  return "";
}

// ---- the layer

AttentionLayer::AttentionLayer(LegacyClient& client, Device& device, cudnnHandle_t handle,
                               const MultiHead& m, const LayerOptions& o, bool trains)
    : q(client, device, o, m.batch, m.beam, m.steps, m.size[0], m.query_lengths),
      k(client, device, o, m.batch, 1, m.keys, m.size[1], m.key_lengths),
      v(client, device, o, m.batch, 1, m.keys, m.size[2], m.key_lengths),
      residual(client, device, o, m.batch, m.beam, m.steps, m.OutputSize(), m.query_lengths),
      out(client, device, o, m.batch, m.beam, m.steps, m.OutputSize(), m.query_lengths),
      dout(client, device, o, m.batch, m.beam, m.steps, m.OutputSize(), m.query_lengths),
      dq(client, device, o, m.batch, m.beam, m.steps, m.size[0], m.query_lengths),
      dk(client, device, o, m.batch, 1, m.keys, m.size[1], m.key_lengths),
      dv(client, device, o, m.batch, 1, m.keys, m.size[2], m.key_lengths),
      client_(client),
      device_(device),
      handle_(handle),
      m_(m),
      type_(ElementOf(o.type)),
      weight_elements_(PlacesOf(m).end) {
  desc_ = client.New<cudnnAttnDescriptor_t>("Attn");
  const unsigned mode = (o.one_to_one ? CUDNN_ATTN_QUERYMAP_ONE_TO_ONE : 0) |
                        (m.biases ? CUDNN_ATTN_ENABLE_PROJ_BIASES : 0);
  if (!Done("SetAttnDescriptor",
            KILN_CALL(client, cudnnSetAttnDescriptor, desc_, mode, m.heads, m.scale, o.type,
                      o.compute, o.math, o.attn_dropout, o.post_dropout, m.size[0], m.size[1],
                      m.size[2], m.projected[0], m.projected[1], m.projected[2], m.projected[3],
                      m.steps + o.spare, m.keys + o.spare, m.batch + o.spare,
                      o.one_to_one ? 1 : m.beam + o.spare)))
    return;
  if (!Done("GetMultiHeadAttnBuffers",
            KILN_CALL(client, cudnnGetMultiHeadAttnBuffers, handle, desc_, &weight_bytes_,
                      &work_bytes_, trains ? &reserve_bytes_ : static_cast<size_t*>(nullptr))))
    return;
  if (weight_bytes_ != static_cast<size_t>(weight_elements_) * oracle::Row(type_).bytes) {
    error_ = "the weights have " + std::to_string(weight_bytes_) + " bytes";
    return;
  }
  weights_ = Filled(device, weight_bytes_, 0xff);
  dweights_ = Filled(device, weight_bytes_, 0xff);
  work_ = Filled(device, work_bytes_, 0xff);
  reserve_ = Filled(device, reserve_bytes_, 0xff);
  query_lengths_ = OfInts(device, m.query_lengths);
  key_lengths_ = OfInts(device, m.key_lengths);
}

void AttentionLayer::Write(const MultiHeadData& data) {
  q.Write(data.q);
  k.Write(data.k);
  v.Write(data.v);
  // A residual is added in padding, too.
  if (m_.residual) residual.Write(data.residual, false);
  Upload(*weights_, data.weights);
}

bool AttentionLayer::Forward(int step, bool trains) {
  return Done(
      "Forward",
      KILN_CALL(client_, cudnnMultiHeadAttnForward, handle_, desc_, step, m_.lo.data(),
                m_.hi.data(), reinterpret_cast<const int*>(query_lengths_->data()),
                reinterpret_cast<const int*>(key_lengths_->data()), q.desc(), q.data(),
                m_.residual ? residual.data() : nullptr, k.desc(), k.data(), v.desc(), v.data(),
                out.desc(), out.data(), weight_bytes_, weights_->data(), work_bytes_, work_->data(),
                trains ? reserve_bytes_ : size_t{0}, trains ? reserve_->data() : nullptr));
}

bool AttentionLayer::BackwardData() {
  return Done("BackwardData",
              KILN_CALL(client_, cudnnMultiHeadAttnBackwardData, handle_, desc_, m_.lo.data(),
                        m_.hi.data(), reinterpret_cast<const int*>(query_lengths_->data()),
                        reinterpret_cast<const int*>(key_lengths_->data()), dout.desc(),
                        dout.data(), dq.desc(), dq.data(), q.data(), dk.desc(), dk.data(), k.data(),
                        dv.desc(), dv.data(), v.data(), weight_bytes_, weights_->data(),
                        work_bytes_, work_->data(), reserve_bytes_, reserve_->data()));
}

bool AttentionLayer::BackwardWeights(bool adds) {
  return Done("BackwardWeights",
              KILN_CALL(client_, cudnnMultiHeadAttnBackwardWeights, handle_, desc_,
                        adds ? CUDNN_WGRAD_MODE_ADD : CUDNN_WGRAD_MODE_SET, q.desc(), q.data(),
                        k.desc(), k.data(), v.desc(), v.data(), dout.desc(), dout.data(),
                        weight_bytes_, weights_->data(), dweights_->data(), work_bytes_,
                        work_->data(), reserve_bytes_, reserve_->data()));
}

bool AttentionLayer::Done(const char* what, cudnnStatus_t status) {
  char text[512] = "";
  if (status != CUDNN_STATUS_SUCCESS) client_.LastError(text, sizeof text);
  const std::string waited = device_.Synchronize();
  if (status != CUDNN_STATUS_SUCCESS || !waited.empty())
    error_ = std::string(what) + ": " + std::to_string(status) + " " + text + waited;
  return error_.empty();
}

Vector AttentionLayer::DownloadElements(const Buffer& buffer) const {
  std::vector<uint8_t> host(weight_bytes_);
  if (!host.empty()) device_.CopyOut(host.data(), buffer.data(), host.size());
  Vector values;
  for (int64_t i = 0; i < weight_elements_; ++i)
    values.push_back(oracle::DecodeAt(type_, host.data(), i));
  return values;
}

void AttentionLayer::Upload(const Buffer& buffer, const Vector& values) {
  std::vector<uint8_t> host(weight_bytes_);
  for (int64_t i = 0; i < weight_elements_; ++i)
    oracle::EncodeAt(type_, values[static_cast<size_t>(i)], host.data(), i);
  if (!host.empty()) device_.CopyIn(buffer.data(), host.data(), host.size());
}

}  // namespace kiln::testing
