// The CTC loss. Reference 8.2.2, 8.2.12 and 8.2.13.
//
// It is a client of the graph's ctc_loss. Labels and lengths of the host travel as arguments of
// launches (host_values.h) into the beginning of the work space: label lengths, input lengths,
// labels. The longest label is part of a plan, in steps, so that batches share plans. Both
// algorithms are one, which adds in a fixed order and takes labels of any length.
#include <algorithm>
#include <optional>
#include <vector>

#include "api/legacy/descriptors/ctc_descriptor.h"
#include "api/legacy/functions.h"
#include "api/legacy/plans/call.h"
#include "api/legacy/plans/host_values.h"

namespace kiln::api::legacy {
namespace {

using graph::TensorId;

// ---- one loss

constexpr int64_t kMostInt = INT32_MAX;
// Labels up to a multiple of this share a plan.
constexpr int64_t kLabelStep = 16;
// The work space of a plan begins at a multiple of this.
constexpr int64_t kPlanAlignment = 256;
constexpr int kIntAlignment = 4;

struct Problem {
  CtcLossDesc desc;
  TensorDesc probs;
  std::optional<TensorDesc> gradients;

  int64_t samples() const { return probs.dims[1]; }
};

struct Pointers {
  const void* probs = nullptr;
  const void *labels = nullptr, *label_lengths = nullptr, *input_lengths = nullptr;
  void* costs = nullptr;
  void* gradients = nullptr;
};

Status CheckTensor(const TensorDesc& tensor, std::string_view name) {
  RETURN_IF_ERROR(CheckSet(tensor, name));
  if (tensor.rank != 3)
    return Status::Error(Code::kBadParam, "{} is {}: it has 3 dims, frames, samples and symbols",
                         name, Text(tensor));
  if (tensor.type == CUDNN_DATA_FLOAT) return {};
  return Status::Error(Code::kNotSupported, "{} is {}: float is possible", name, Text(tensor));
}

Result<Problem> ProblemOf(int algorithm, const void* desc, const void* probs_desc,
                          const void* gradients_desc) {
  Problem p;
  ASSIGN_OR_RETURN(const CtcLossDesc* loss, Get<CtcLossDesc>(desc));
  ASSIGN_OR_RETURN(const TensorDesc* probs, Get<TensorDesc>(probs_desc));
  p.desc = *loss;
  p.probs = *probs;
  RETURN_IF_ERROR(CheckTensor(*probs, "probs"));
  if (gradients_desc != nullptr) {
    ASSIGN_OR_RETURN(const TensorDesc* gradients, Get<TensorDesc>(gradients_desc));
    RETURN_IF_ERROR(CheckTensor(*gradients, "gradients"));
    RETURN_IF_ERROR(CheckSameDims(*probs, *gradients));
    p.gradients = *gradients;
  }
  RETURN_IF_ERROR(CheckEnum(algorithm, 1, "cudnnCTCLossAlgo_t"));
  RETURN_IF_ERROR(CheckEnum(loss->normalization, 1, "cudnnLossNormalizationMode_t"));
  RETURN_IF_ERROR(CheckEnum(loss->gradient, 1, "cudnnCTCGradMode_t"));
  if (loss->type != CUDNN_DATA_FLOAT)
    return Status::Text(Code::kNotSupported, "the loss is computed in float, compType is double");
  return p;
}

// The longest label is `longest`; sets what the plan reckons with.
Status SetLongest(Problem& p, int64_t longest) {
  if (longest < 0) return Status::Error(Code::kBadParam, "maxLabelLength is {}", longest);
  const int64_t rounded = (longest + kLabelStep - 1) / kLabelStep * kLabelStep;
  if (rounded * p.samples() > kMostInt)
    return Status::Error(Code::kNotSupported, "{} samples with labels of {} are too many",
                         p.samples(), longest);
  p.desc.max_label = static_cast<int32_t>(longest);
  return {};
}

TensorDesc IntegersDesc(int64_t count) {
  TensorDesc desc = {.type = CUDNN_DATA_INT32, .rank = 1};
  desc.dims[0] = static_cast<int32_t>(std::max<int64_t>(count, 1));
  desc.strides[0] = 1;
  return desc;
}

TensorDesc CostsDesc(const Problem& p) {
  TensorDesc desc = IntegersDesc(p.samples());
  desc.type = CUDNN_DATA_FLOAT;
  return desc;
}

// A loss with its operands as a call. A Get function has no pointers.
class LossCall {
 public:
  LossCall(Handle& handle, const Problem& p, const Pointers& at)
      : call_(handle, "CTC loss"),
        p_(p),
        costs_desc_(CostsDesc(p)),
        lengths_desc_(IntegersDesc(p.samples())),
        labels_desc_(IntegersDesc(p.samples() * p.desc.max_label)) {
    call_.Add(p.desc);
    probs_ = call_.Memory(p.probs, at.probs);
    labels_ = call_.Memory(labels_desc_, at.labels, kIntAlignment);
    label_lengths_ = call_.Memory(lengths_desc_, at.label_lengths, kIntAlignment);
    input_lengths_ = call_.Memory(lengths_desc_, at.input_lengths, kIntAlignment);
    costs_ = call_.Memory(costs_desc_, at.costs, kIntAlignment);
    if (!p.gradients) return;
    gradients_ = call_.Memory(*p.gradients, at.gradients);
    if (skips()) before_ = call_.Memory(*p.gradients, at.gradients);
  }

  Result<int64_t> WorkspaceBytes() {
    return call_.WorkspaceBytes([&](CallGraph& g) { return Make(g); });
  }
  Status Run(const Workspace& workspace) {
    return call_.Run(workspace, [&](CallGraph& g) { return Make(g); });
  }

 private:
  bool skips() const { return p_.desc.gradient != 0; }

  Status Make(CallGraph& g) const {
    std::vector<TensorId> inputs;
    for (const Operand* operand : {&probs_, &labels_, &label_lengths_, &input_lengths_}) {
      ASSIGN_OR_RETURN(const TensorId id, g.Read(*operand));
      inputs.push_back(id);
    }
    if (before_.slot >= 0) {
      ASSIGN_OR_RETURN(const TensorId before, g.Read(before_));
      inputs.push_back(before);
    }
    ASSIGN_OR_RETURN(const TensorId costs, g.Stored(costs_));
    std::vector<TensorId> outputs = {costs};
    if (gradients_.slot >= 0) {
      ASSIGN_OR_RETURN(const TensorId gradients, g.Stored(gradients_));
      outputs.push_back(gradients);
    }
    g.builder().graph().AddNode(
        {.op = graph::GraphOp::kCtcLoss,
         .inputs = std::move(inputs),
         .outputs = std::move(outputs),
         .compute = DType::kF32,
         .attrs = graph::CtcLossAttrs{.softmax = p_.desc.normalization != 0,
                                      .skip_infeasible = skips() && gradients_.slot >= 0,
                                      .max_label = p_.desc.max_label},
         .name = "ctc_loss"});
    return {};
  }

  Call call_;
  const Problem& p_;
  const TensorDesc costs_desc_, lengths_desc_, labels_desc_;
  Operand probs_, labels_, label_lengths_, input_lengths_, costs_, gradients_, before_;
};

// A gradient has memory and a descriptor, or neither.
Status CheckGradients(const Problem& p, const void* gradients) {
  if (p.gradients.has_value()) return NotNull(gradients, "gradients");
  if (gradients == nullptr) return {};
  return Status::Text(Code::kBadParam, "there are gradients, and no descriptor of theirs");
}

// Kernels need so many bytes, and pointers as allocators give them.
Status CheckWorkspace(const void* workspace, size_t bytes, int64_t needed) {
  if (static_cast<int64_t>(bytes) < needed)
    return Status::Error(Code::kBadParam, "{} bytes of work space; {} are needed", bytes, needed);
  return CheckPlace(workspace, "the work space");
}

// ---- labels and lengths of the host

struct HostArrays {
  const int *labels = nullptr, *label_lengths = nullptr, *input_lengths = nullptr;
};

// Checks lengths, and sets the longest label.
Result<int64_t> CountLabels(Problem& p, const HostArrays& host) {
  RETURN_IF_ERROR(NotNull(host.label_lengths, "labelLengths"));
  RETURN_IF_ERROR(NotNull(host.input_lengths, "inputLengths"));
  int64_t longest = 0, total = 0;
  for (int64_t n = 0; n < p.samples(); ++n) {
    const int label = host.label_lengths[n], input = host.input_lengths[n];
    if (label < 0)
      return Status::Error(Code::kBadParam, "the label of sample {} has length {}", n, label);
    if (input < 0 || input > p.probs.dims[0])
      return Status::Error(Code::kBadParam,
                           "the input of sample {} has length {}: 0 to {} are possible", n, input,
                           p.probs.dims[0]);
    longest = std::max<int64_t>(longest, label);
    total += label;
  }
  if (total > 0) RETURN_IF_ERROR(NotNull(host.labels, "labels"));
  RETURN_IF_ERROR(SetLongest(p, longest));
  p.desc.max_label = static_cast<int32_t>((longest + kLabelStep - 1) / kLabelStep * kLabelStep);
  return total;
}

int64_t LengthBytes(const Problem& p) { return HostValuesBytes(2 * p.samples()); }

// Bytes that they have in the work space.
int64_t HostArrayBytes(const Problem& p) {
  const int64_t bytes = LengthBytes(p) + HostValuesBytes(p.samples() * int64_t{p.desc.max_label});
  return (bytes + kPlanAlignment - 1) / kPlanAlignment * kPlanAlignment;
}

// Labels, behind both lengths, in memory of the device.
Pointers PlacesOf(const Problem& p, void* memory) {
  auto* const place = static_cast<int32_t*>(memory);
  if (place == nullptr) return {};
  return {.labels = place + LengthBytes(p) / int64_t{sizeof(int32_t)},
          .label_lengths = place,
          .input_lengths = place + p.samples()};
}

// Lengths go by themselves: labels, of which there are more, are mostly smaller and travel packed.
Status WriteHostArrays(Handle& handle, const Problem& p, const HostArrays& host, int64_t labels,
                       void* memory) {
  std::vector<int32_t> lengths(host.label_lengths, host.label_lengths + p.samples());
  lengths.insert(lengths.end(), host.input_lengths, host.input_lengths + p.samples());
  RETURN_IF_ERROR(WriteHostValues(handle, lengths, memory));
  return WriteHostValues(handle, {host.labels, static_cast<size_t>(labels)},
                         static_cast<std::byte*>(memory) + LengthBytes(p));
}

}  // namespace

Status GetCTCLossWorkspaceSize(void* handle, void* probs_desc, void* gradients_desc,
                               const int* labels, const int* label_lengths,
                               const int* input_lengths, int algorithm, void* desc, size_t* bytes) {
  ASSIGN_OR_RETURN(Handle * h, HandleFrom(handle));
  ASSIGN_OR_RETURN(Problem p, ProblemOf(algorithm, desc, probs_desc, gradients_desc));
  RETURN_IF_ERROR(CountLabels(p, {labels, label_lengths, input_lengths}).status());
  ASSIGN_OR_RETURN(const int64_t plan, LossCall(*h, p, {}).WorkspaceBytes());
  *bytes = static_cast<size_t>(HostArrayBytes(p) + plan);
  return {};
}

Status GetCTCLossWorkspaceSize_v8(void* handle, int algorithm, void* desc, void* probs_desc,
                                  void* gradients_desc, size_t* bytes) {
  ASSIGN_OR_RETURN(Handle * h, HandleFrom(handle));
  ASSIGN_OR_RETURN(Problem p, ProblemOf(algorithm, desc, probs_desc, gradients_desc));
  RETURN_IF_ERROR(SetLongest(p, p.desc.max_label));
  ASSIGN_OR_RETURN(const int64_t plan, LossCall(*h, p, {}).WorkspaceBytes());
  *bytes = static_cast<size_t>(plan);
  return {};
}

Status CTCLoss(void* handle, void* probs_desc, const void* probs, const int* labels,
               const int* label_lengths, const int* input_lengths, void* costs,
               void* gradients_desc, void* gradients, int algorithm, void* desc, void* workspace,
               size_t bytes) {
  ASSIGN_OR_RETURN(Handle * h, HandleFrom(handle));
  ASSIGN_OR_RETURN(Problem p, ProblemOf(algorithm, desc, probs_desc, gradients_desc));
  const HostArrays host = {labels, label_lengths, input_lengths};
  ASSIGN_OR_RETURN(const int64_t count, CountLabels(p, host));
  Pointers at = PlacesOf(p, workspace);
  at.probs = probs;
  at.costs = costs;
  at.gradients = gradients;
  const int64_t arrays = HostArrayBytes(p);
  RETURN_IF_ERROR(CheckWorkspace(workspace, bytes, arrays));
  RETURN_IF_ERROR(CheckGradients(p, gradients));
  LossCall call(*h, p, at);
  ASSIGN_OR_RETURN(const int64_t plan, call.WorkspaceBytes());
  RETURN_IF_ERROR(CheckWorkspace(workspace, bytes, arrays + plan));
  RETURN_IF_ERROR(WriteHostArrays(*h, p, host, count, workspace));
  return call.Run({.data = static_cast<std::byte*>(workspace) + arrays,
                   .bytes = static_cast<int64_t>(bytes) - arrays,
                   .is_parameter = true});
}

Status CTCLoss_v8(void* handle, int algorithm, void* desc, void* probs_desc, const void* probs,
                  const int* labels, const int* label_lengths, const int* input_lengths,
                  void* costs, void* gradients_desc, void* gradients, size_t bytes,
                  void* workspace) {
  ASSIGN_OR_RETURN(Handle * h, HandleFrom(handle));
  ASSIGN_OR_RETURN(Problem p, ProblemOf(algorithm, desc, probs_desc, gradients_desc));
  RETURN_IF_ERROR(SetLongest(p, p.desc.max_label));
  const Pointers at = {probs, labels, label_lengths, input_lengths, costs, gradients};
  if (p.desc.max_label > 0) RETURN_IF_ERROR(NotNull(labels, "labels"));
  RETURN_IF_ERROR(CheckGradients(p, gradients));
  LossCall call(*h, p, at);
  ASSIGN_OR_RETURN(const int64_t plan, call.WorkspaceBytes());
  RETURN_IF_ERROR(CheckWorkspace(workspace, bytes, plan));
  return call.Run({.data = workspace, .bytes = static_cast<int64_t>(bytes), .is_parameter = true});
}

}  // namespace kiln::api::legacy
