// cudnn-frontend's JSON → tensor graph: one row of kTags a node tag. Tensors are keyed and referred
// to by uid, or by name before uids are given; data types left open come from the context, as the
// frontend itself resolves them.
#include "ir/graph/import_frontend.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cctype>
#include <charconv>
#include <map>
#include <span>

#include "ir/graph/attention_parts.h"
#include "ir/graph/builder.h"
#include "ir/graph/import_json.h"
#include "ir/graph/memory_layout.h"
#include "ir/graph/moe_backward.h"
#include "ir/graph/ops.h"
#include "ir/graph/rope.h"
#include "ir/graph/sdpa.h"
#include "ir/graph/text.h"
#include "ir/graph/uids.h"

namespace kiln::graph {
namespace {

constexpr size_t kMaxNodes = size_t{1} << 17;

Result<DType> ReadType(const JsonRef& json, DType otherwise) {
  if (json.is_null() || json.value() == "NOT_SET") return otherwise;
  return DTypeNamed(json, "");
}

// A float as the frontend writes it: the bits in hex digits, or a plain number; null gives
// `otherwise`.
Result<double> ReadFloat(const JsonRef& json, double otherwise) {
  if (json.is_null()) return otherwise;
  if (json.value().is_number()) return json.value().get<double>();
  ASSIGN_OR_RETURN(const std::string digits, json.Text());
  uint32_t bits = 0;
  const auto result = std::from_chars(digits.data(), digits.data() + digits.size(), bits, 16);
  const bool whole =
      result.ec == std::errc() && result.ptr == digits.data() + digits.size() && digits.size() <= 8;
  RETURN_IF_ERROR(
      json.Expect(whole && !digits.empty(), "the bits of a float in hex digits, as \"3F800000\""));
  return static_cast<double>(std::bit_cast<float>(bits));
}

Result<Dims> ReadList(const JsonRef& json) {
  if (json.is_null()) return Dims{};
  return json.List();
}

using ReadAttrs = Status (*)(const JsonRef& json, Attrs& attrs);

Status ReadConv(const JsonRef& json, Attrs& attrs) {
  auto& conv = std::get<ConvAttrs>(attrs);
  ASSIGN_OR_RETURN(conv.pre_padding, json["pre_padding"].List());
  ASSIGN_OR_RETURN(conv.post_padding, json["post_padding"].List());
  ASSIGN_OR_RETURN(conv.stride, json["stride"].List());
  ASSIGN_OR_RETURN(conv.dilation, json["dilation"].List());
  const JsonRef mode = json["math_mode"];
  conv.flip = !mode.is_null() && mode.value() == "CONVOLUTION";
  return mode.Expect(mode.is_null() || conv.flip || mode.value() == "CROSS_CORRELATION",
                     "CONVOLUTION or CROSS_CORRELATION");
}

// The name of an enumerator, spelled in capitals, looked up among ours.
template <class T, class Find>
Status ReadMode(const JsonRef& json, Find find, T& mode) {
  ASSIGN_OR_RETURN(std::string name, json.Text());
  for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  const auto found = find(name);
  RETURN_IF_ERROR(json.Expect(found.has_value(), KnownModeText(name, NamesOf<T>())));
  mode = *found;
  return {};
}

Status ReadPointwise(const JsonRef& json, Attrs& attrs) {
  auto& a = std::get<PointwiseAttrs>(attrs);
  RETURN_IF_ERROR(ReadMode(json["mode"], PointwiseModeFromText, a.mode));
  if (json.Has("axis")) {
    ASSIGN_OR_RETURN(a.axis, json["axis"].Int());
  }
  ASSIGN_OR_RETURN(a.relu_lower, ReadFloat(json["relu_lower_clip"], a.relu_lower));
  ASSIGN_OR_RETURN(a.relu_upper, ReadFloat(json["relu_upper_clip"], a.relu_upper));
  ASSIGN_OR_RETURN(a.relu_slope, ReadFloat(json["relu_lower_clip_slope"], a.relu_slope));
  ASSIGN_OR_RETURN(a.elu_alpha, ReadFloat(json["elu_alpha"], a.elu_alpha));
  ASSIGN_OR_RETURN(a.softplus_beta, ReadFloat(json["softplus_beta"], a.softplus_beta));
  ASSIGN_OR_RETURN(a.swish_beta, ReadFloat(json["swish_beta"], a.swish_beta));
  // The frontend asks the backend for it on both directions of relu.
  a.propagate_nan = a.mode == PointwiseMode::kReluFwd || a.mode == PointwiseMode::kReluBwd;
  return {};
}

Status ReadReduction(const JsonRef& json, Attrs& attrs) {
  return ReadMode(json["mode"], ReductionModeFromText, std::get<ReductionAttrs>(attrs).mode);
}

Status ReadMatmul(const JsonRef& json, Attrs& attrs) {
  ASSIGN_OR_RETURN(std::get<MatmulAttrs>(attrs).padding_value, ReadFloat(json["padding_value"], 0));
  return {};
}

template <NormMode mode>
Status ReadNormForward(const JsonRef& json, Attrs& attrs) {
  auto& a = std::get<NormForwardAttrs>(attrs);
  a.mode = mode;
  const JsonRef phase = json["forward_phase"];  // batch norm has a tag for each phase
  a.inference = !phase.is_null() && phase.value() == "INFERENCE";
  return phase.Expect(phase.is_null() || a.inference || phase.value() == "TRAINING",
                      "INFERENCE or TRAINING");
}

Status ReadBatchInference(const JsonRef&, Attrs& attrs) {
  attrs = NormForwardAttrs{.mode = NormMode::kBatch, .inference = true};
  return {};
}

template <NormMode mode>
Status ReadNormBackward(const JsonRef&, Attrs& attrs) {
  std::get<NormBackwardAttrs>(attrs).mode = mode;
  return {};
}

Status ReadConcat(const JsonRef& json, Attrs& attrs) {
  ASSIGN_OR_RETURN(std::get<ConcatAttrs>(attrs).axis, json["axis"].Int());
  return {};
}

Status ReadTranspose(const JsonRef& json, Attrs& attrs) {
  ASSIGN_OR_RETURN(std::get<TransposeAttrs>(attrs).permutation, json["permutation"].List());
  return {};
}

// "slices" is [[first, past the last], …]; the extents that follow are the output's, in
// FinishSlice.
Status ReadSlice(const JsonRef& json, Attrs& attrs) {
  auto& slice = std::get<SliceAttrs>(attrs);
  const JsonRef slices = json["slices"];
  RETURN_IF_ERROR(slices.Expect(slices.value().is_array() && slices.value().size() <= 8,
                                "a list of up to 8 ranges"));
  for (size_t d = 0; d < slices.value().size(); ++d) {
    ASSIGN_OR_RETURN(const Dims range, slices.At(d).List());
    RETURN_IF_ERROR(slices.At(d).Expect(range.size() == 2, "a range [first, past the last]"));
    slice.start.push_back(range[0]);
  }
  ASSIGN_OR_RETURN(slice.step, ReadList(json["slice_strides"]));
  slice.step.resize(slice.start.size(), 1);
  return {};
}

Status ReadMoe(const JsonRef& json, Attrs& attrs) {
  auto& a = std::get<MoeGroupedMatmulAttrs>(attrs);
  RETURN_IF_ERROR(ReadMode(json["mode"], MoeModeFromText, a.mode));
  if (json.Has("top_k")) {
    ASSIGN_OR_RETURN(a.top_k, json["top_k"].Int());
  }
  return {};
}

Status ReadNothing(const JsonRef&, Attrs&) { return {}; }

// Writes what a node means, where that is no node of ours. False: it is one.
using Spell = Result<bool> (*)(const JsonRef& json, const Node& node, Graph& graph);

Result<bool> SpellRopeNode(const JsonRef& json, const Node& node, Graph& graph) {
  RopeParts parts{.x = OperandOr(node.inputs, 0),
                  .freqs = OperandOr(node.inputs, 1),
                  .y = OperandOr(node.outputs, 0),
                  .is_backward = json["tag"].value() == "ROPE_BWD"};
  ASSIGN_OR_RETURN(parts.scale, ReadFloat(json["output_scale"], 1));
  if (json.Has("rope_dim")) {
    ASSIGN_OR_RETURN(parts.rope_dim, json["rope_dim"].Int());
  }
  if (parts.x != kAbsent && parts.y != kAbsent && parts.x != parts.y) {
    const Tensor& x = graph[parts.x];
    if (graph[parts.y].dims.empty()) {  // of a graph that was not built
      graph[parts.y].dims = x.dims;
      graph[parts.y].strides = x.strides;
    }
    if (parts.rope_dim == 0 && !x.dims.empty()) parts.rope_dim = x.dims.back();
  }
  RETURN_IF_ERROR(CheckRope(graph, parts));
  SpellRope(graph, parts);
  return true;
}

Result<bool> SpellMoeGradient(const JsonRef&, const Node& node, Graph& graph) {
  const MoeBackwardParts parts{.token = OperandOr(node.inputs, 0),
                               .doutput = OperandOr(node.inputs, 1),
                               .first_token_offset = OperandOr(node.inputs, 2),
                               .dweight = OperandOr(node.outputs, 0),
                               .compute = node.compute};
  RETURN_IF_ERROR(CheckMoeBackward(graph, parts));
  SpellMoeBackward(graph, parts);
  return true;
}

// A reshape keeps memory as it lies, or else the order of elements.
Result<bool> SpellReshape(const JsonRef& json, const Node& node, Graph& graph) {
  const JsonRef mode = json["reshape_mode"];
  if (mode.is_null() || mode.value() == "VIEW_ONLY") return false;
  RETURN_IF_ERROR(mode.Expect(mode.value() == "LOGICAL", "VIEW_ONLY or LOGICAL"));
  const TensorId x = OperandOr(node.inputs, 0), y = OperandOr(node.outputs, 0);
  RETURN_IF_ERROR(CheckLogicalReshape(graph, x, y));
  SpellLogicalReshape(graph, x, y);
  return true;
}

// A port name of "" takes all inputs, in their order.
struct Tag {
  std::string_view name;
  GraphOp op;  // where the node is spelled out, the one that makes its result
  std::vector<std::string_view> inputs, outputs;
  ReadAttrs read;
  Spell spell = nullptr;
};

// The norms' ports are the same but for what a mode has not; Verify knows.
Tag NormTag(std::string_view name, ReadAttrs read) {
  return {name,
          GraphOp::kNormForward,
          {"X", "MEAN", "INV_VARIANCE", "SCALE", "BIAS", "EPSILON", "MOMENTUM", "PREV_RUNNING_MEAN",
           "PREV_RUNNING_VAR"},
          {"Y", "MEAN", "INV_VARIANCE", "NEXT_RUNNING_MEAN", "NEXT_RUNNING_VAR"},
          read};
}
Tag NormGradientTag(std::string_view name, ReadAttrs read) {
  return {name,
          GraphOp::kNormBackward,
          {"X", "DY", "MEAN", "INV_VARIANCE", "SCALE", "EPSILON"},
          {"DX", "DSCALE", "DBIAS"},
          read};
}

std::span<const Tag> Tags() {
  static const std::array kTags = {
      Tag{"CONV_FPROP", GraphOp::kConvFprop, {"X", "W"}, {"Y"}, ReadConv},
      Tag{"CONV_DGRAD", GraphOp::kConvDgrad, {"DY", "W"}, {"DX"}, ReadConv},
      Tag{"CONV_WGRAD", GraphOp::kConvWgrad, {"X", "DY"}, {"DW"}, ReadConv},
      Tag{"POINTWISE", GraphOp::kPointwise, {"IN_0", "IN_1", "IN_2"}, {"OUT_0"}, ReadPointwise},
      Tag{"REDUCTION", GraphOp::kReduction, {"X"}, {"Y"}, ReadReduction},
      Tag{"MATMUL",
          GraphOp::kMatmul,
          {"A", "B", "M_override", "N_override", "K_override"},
          {"C"},
          ReadMatmul},
      Tag{"GENSTATS", GraphOp::kGenStats, {"X"}, {"SUM", "SQ_SUM"}, ReadNothing},
      Tag{"BN_FINALIZE",
          GraphOp::kBnFinalize,
          {"SUM", "SQ_SUM", "SCALE", "BIAS", "PREV_RUNNING_MEAN", "PREV_RUNNING_VAR", "EPSILON",
           "MOMENTUM", "ACCUM_COUNT"},
          {"NEXT_RUNNING_MEAN", "NEXT_RUNNING_VAR", "MEAN", "INV_VARIANCE", "EQ_SCALE", "EQ_BIAS"},
          ReadNothing},
      Tag{"DBN_WEIGHT",
          GraphOp::kBnBwdWeights,
          {"X", "DY", "MEAN", "INV_VARIANCE", "SCALE"},
          {"DSCALE", "DBIAS", "EQ_SCALE_DY", "EQ_SCALE_X", "EQ_BIAS"},
          ReadNothing},
      NormTag("LAYER_NORM", ReadNormForward<NormMode::kLayer>),
      NormTag("ADA_LAYER_NORM", ReadNormForward<NormMode::kAdaLayer>),
      NormTag("INSTANCE_NORM", ReadNormForward<NormMode::kInstance>),
      NormTag("RMS_NORM", ReadNormForward<NormMode::kRms>),
      NormTag("BATCHNORM", ReadNormForward<NormMode::kBatch>),
      NormTag("BATCHNORM_INFERENCE", ReadBatchInference),
      NormGradientTag("LAYER_NORM_BPROP", ReadNormBackward<NormMode::kLayer>),
      NormGradientTag("ADA_LAYER_NORM_BPROP", ReadNormBackward<NormMode::kAdaLayer>),
      NormGradientTag("INSTANCE_NORM_BPROP", ReadNormBackward<NormMode::kInstance>),
      NormGradientTag("RMS_NORM_BPROP", ReadNormBackward<NormMode::kRms>),
      NormGradientTag("DBN", ReadNormBackward<NormMode::kBatch>),
      Tag{"RESHAPE", GraphOp::kReshape, {"X"}, {"Y"}, ReadNothing, SpellReshape},
      Tag{"CONCATENATE", GraphOp::kConcat, {""}, {"Y"}, ReadConcat},
      Tag{"SLICE", GraphOp::kSlice, {"X"}, {"Y"}, ReadSlice},
      Tag{"TRANSPOSE", GraphOp::kTranspose, {"X"}, {"Y"}, ReadTranspose},
      Tag{"ROPE", GraphOp::kConcat, {"INPUT", "FREQS"}, {"OUTPUT"}, ReadNothing, SpellRopeNode},
      Tag{"ROPE_BWD", GraphOp::kConcat, {"DY", "FREQS"}, {"DX"}, ReadNothing, SpellRopeNode},
      Tag{"MOE_GROUPED_MATMUL",
          GraphOp::kMoeGroupedMatmul,
          {"Token", "Weight", "FirstTokenOffset", "TokenIndex", "TokenKs"},
          {"Output"},
          ReadMoe},
      Tag{"MOE_GROUPED_MATMUL_BWD",
          GraphOp::kMatmul,
          {"Token", "DOutput", "FirstTokenOffset"},
          {"DWeight"},
          ReadNothing,
          SpellMoeGradient},
  };
  return kTags;
}

class Importer {
 public:
  explicit Importer(const nlohmann::json& document) : root_(document, "") {}
  Result<Graph> Run();

 private:
  Status ReadContext();
  Status ReadTensors();
  Status ReadTensor(const JsonRef& json, const std::string& key);
  Status ReadByValue(const JsonRef& json, Tensor& tensor);
  Status ReadNode(const JsonRef& json);
  Status ReadPorts(const JsonRef& json, const std::vector<std::string_view>& names,
                   std::vector<TensorId>& ids);
  Result<TensorId> Lookup(const JsonRef& reference);
  Status FinishNode(const JsonRef& json, const Node& node);

  JsonRef root_;
  Graph graph_;
  std::map<std::string, TensorId> ids_;
  LaidOutTensors layouts_;
  DType io_ = DType::kF32, intermediate_ = DType::kF32, compute_ = DType::kF32;
};

Status Importer::ReadContext() {
  const JsonRef context = root_["context"];
  RETURN_IF_ERROR(context.Expect(context.value().is_object(), "an object"));
  if (context.Has("name")) {
    ASSIGN_OR_RETURN(graph_.name, context["name"].Text());
  }
  if (graph_.name.empty()) graph_.name = "graph";
  ASSIGN_OR_RETURN(io_, ReadType(context["io_data_type"], DType::kF32));
  ASSIGN_OR_RETURN(intermediate_, ReadType(context["intermediate_data_type"], DType::kF32));
  ASSIGN_OR_RETURN(compute_, ReadType(context["compute_data_type"], DType::kF32));
  return {};
}

Status Importer::ReadTensors() {
  const JsonRef tensors = root_["tensors"];
  const bool list = tensors.value().is_array();
  RETURN_IF_ERROR(tensors.Expect(list || tensors.value().is_object(), "an object or a list"));
  RETURN_IF_ERROR(tensors.Expect(tensors.value().size() <= 4 * kMaxNodes, "of a sensible size"));
  if (!list) {
    for (const auto& [key, value] : tensors.value().items())
      RETURN_IF_ERROR(ReadTensor(tensors[key], key));
    return {};
  }
  for (size_t i = 0; i < tensors.value().size(); ++i) {  // version 2.0 of the format
    const JsonRef tensor = tensors.At(i);
    RETURN_IF_ERROR(
        tensor.Expect(tensor.value().is_object() && tensor.Has("uid"), "a tensor with a uid"));
    ASSIGN_OR_RETURN(const int64_t uid, tensor["uid"].Int());
    const std::string key = fmt::format("{}", uid);
    if (ids_.contains(key)) return tensor.Fail(fmt::format("is a second tensor of uid {}", uid));
    RETURN_IF_ERROR(ReadTensor(tensor, key));
  }
  return {};
}

Status Importer::ReadTensor(const JsonRef& json, const std::string& key) {
  RETURN_IF_ERROR(json.Expect(json.value().is_object(), "an object"));
  if (json.Has("ragged_offset_uid") || json.Has("ragged_offset_name")) {
    return Status::Error(Code::kNotSupported, "{}: ragged offsets are not supported yet",
                         json.path());
  }
  LayoutSpec spec;
  ASSIGN_OR_RETURN(spec.reordering, ReorderingNamed(json["reordering_type"], ""));
  Tensor tensor;
  tensor.name = key;
  if (json.Has("name")) {
    ASSIGN_OR_RETURN(tensor.name, json["name"].Text());
  }
  if (tensor.name.empty()) tensor.name = key;
  ASSIGN_OR_RETURN(const bool assigned, json["uid_assigned"].Bool(json.Has("uid")));
  if (assigned) {
    ASSIGN_OR_RETURN(tensor.uid, json["uid"].Int());
  }
  ASSIGN_OR_RETURN(tensor.is_virtual, json["is_virtual"].Bool(false));
  ASSIGN_OR_RETURN(tensor.by_value, json["is_pass_by_value"].Bool(false));
  ASSIGN_OR_RETURN(tensor.dims, ReadList(json["dim"]));
  ASSIGN_OR_RETURN(tensor.strides, ReadList(json["stride"]));
  ASSIGN_OR_RETURN(tensor.dtype,
                   ReadType(json["data_type"], tensor.is_virtual ? intermediate_ : io_));
  const bool is_byte = json["data_type"].value() == "BYTE_BOOLEAN";
  if (tensor.dtype == DType::kBool && !tensor.is_virtual && !tensor.by_value && !is_byte)
    tensor.dtype = DType::kB1;  // one bit in memory
  if (json.Has("pass_by_value")) RETURN_IF_ERROR(ReadByValue(json["pass_by_value"], tensor));
  Result<TensorId> id = layouts_.Add(graph_, std::move(tensor), spec);
  if (!id.ok()) return std::move(id).status().Within(json.path());
  ids_[key] = *id;
  return {};
}

// {"index": which type, "value": …}; the types are the alternatives of the frontend's variant.
Status Importer::ReadByValue(const JsonRef& json, Tensor& tensor) {
  constexpr DType kAlternatives[] = {DType::kI64, DType::kI32, DType::kF16,
                                     DType::kF32, DType::kF64, DType::kBF16};
  ASSIGN_OR_RETURN(const int64_t index, json["index"].Int());
  RETURN_IF_ERROR(json["index"].Expect(
      index >= 0 && index < static_cast<int64_t>(std::size(kAlternatives)), "0..5"));
  ASSIGN_OR_RETURN(tensor.value, ReadFloat(json["value"], 0));
  tensor.by_value = true;
  tensor.is_virtual = false;
  tensor.dtype = kAlternatives[index];
  if (tensor.dims.empty()) tensor.dims = {1};
  return {};
}

Result<TensorId> Importer::Lookup(const JsonRef& reference) {
  std::string key;
  if (reference.value().is_number_integer()) {
    ASSIGN_OR_RETURN(const int64_t uid, reference.Int());
    key = fmt::format("{}", uid);
  } else {
    ASSIGN_OR_RETURN(key, reference.Text());
  }
  const auto found = ids_.find(key);
  if (found == ids_.end()) return reference.Fail(fmt::format("no tensor \"{}\" in tensors", key));
  return found->second;
}

Status Importer::ReadPorts(const JsonRef& json, const std::vector<std::string_view>& names,
                           std::vector<TensorId>& ids) {
  if (names.front().empty()) {
    const bool list = json.value().is_array() || json.value().is_object();
    RETURN_IF_ERROR(json.Expect(list && json.value().size() <= 64, "a list of up to 64 tensors"));
    size_t index = 0;
    for (const auto& [key, value] : json.value().items()) {
      const JsonRef reference = json.value().is_array() ? json.At(index++) : json[key];
      ASSIGN_OR_RETURN(const TensorId id, Lookup(reference));
      ids.push_back(id);
    }
    return {};
  }
  RETURN_IF_ERROR(json.Expect(json.value().is_object(), "an object"));
  for (const auto& [key, value] : json.value().items()) {
    if (std::ranges::find(names, key) == names.end())
      return json[key].Fail("the node has no such port");
  }
  for (const std::string_view name : names) {
    TensorId id = kAbsent;
    if (json.Has(name)) {
      ASSIGN_OR_RETURN(id, Lookup(json[name]));
    }
    ids.push_back(id);
  }
  while (!ids.empty() && ids.back() == kAbsent) ids.pop_back();
  return {};
}

Status Importer::ReadNode(const JsonRef& json) {
  RETURN_IF_ERROR(json.Expect(json.value().is_object(), "an object"));
  ASSIGN_OR_RETURN(const std::string tag, json["tag"].Text());
  const auto row = std::ranges::find(Tags(), tag, &Tag::name);
  if (row == Tags().end()) {
    return Status::Error(Code::kNotSupported, "{}: nodes of tag {} are not supported yet",
                         json.path(), tag);
  }
  Node node;
  node.op = row->op;
  node.attrs = DefaultAttrs(row->op);
  if (json.Has("name")) {
    ASSIGN_OR_RETURN(node.name, json["name"].Text());
  }
  ASSIGN_OR_RETURN(node.compute, ReadType(json["compute_data_type"], compute_));
  RETURN_IF_ERROR(ReadPorts(json["inputs"], row->inputs, node.inputs));
  RETURN_IF_ERROR(ReadPorts(json["outputs"], row->outputs, node.outputs));
  RETURN_IF_ERROR(row->read(json, node.attrs).Within(node.name.empty() ? tag : node.name));
  RETURN_IF_ERROR(FinishNode(json, node));
  if (row->spell != nullptr) {
    Result<bool> spelled = row->spell(json, node, graph_);
    if (!spelled.ok()) return std::move(spelled).status().Within(json.path());
    if (*spelled) return {};
  }
  graph_.AddNode(std::move(node));
  return {};
}

// Takes the output's extents from the node where it has its own: a slice's ranges, a reshape's
// lists.
Status Importer::FinishNode(const JsonRef& json, const Node& node) {
  if (node.outputs.empty() || node.outputs[0] == kAbsent) return {};
  Tensor& y = graph_[node.outputs[0]];
  if (!y.dims.empty()) return {};
  if (node.op == GraphOp::kReshape) {
    ASSIGN_OR_RETURN(y.dims, ReadList(json["dim"]));
    ASSIGN_OR_RETURN(y.strides, ReadList(json["stride"]));
  }
  if (node.op == GraphOp::kSlice) {
    const auto& [start, step] = node.As<SliceAttrs>();
    for (size_t d = 0; d < start.size(); ++d) {
      ASSIGN_OR_RETURN(const Dims range, json["slices"].At(d).List());
      const bool sane = step[d] >= 1 && range[0] >= 0 && range[1] >= range[0];
      RETURN_IF_ERROR(json["slices"].At(d).Expect(sane, "an ascending range"));
      y.dims.push_back((range[1] - range[0]) / step[d] + ((range[1] - range[0]) % step[d] != 0));
    }
  }
  return {};
}

Result<Graph> Importer::Run() {
  RETURN_IF_ERROR(ReadContext());
  RETURN_IF_ERROR(ReadTensors());
  const JsonRef nodes = root_["nodes"];
  RETURN_IF_ERROR(nodes.Expect(nodes.value().is_array() && nodes.value().size() <= kMaxNodes,
                               "a list of nodes"));
  for (size_t i = 0; i < nodes.value().size(); ++i) RETURN_IF_ERROR(ReadNode(nodes.At(i)));
  GiveUids(graph_);  // a graph that was not built has none
  layouts_.Connect(graph_);
  RETURN_IF_ERROR(Legalize(graph_));
  return std::move(graph_);
}

}  // namespace

Result<Graph> ImportFrontend(std::string_view json) {
  ASSIGN_OR_RETURN(const nlohmann::json document, ParseJson(json));
  return Importer(document).Run();
}

}  // namespace kiln::graph
