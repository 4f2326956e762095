// The text form of a graph: one line a tensor, one line a node, in the order of their ids.
// Attributes that have their default value are left out, except the one that says what a node
// computes. See graph.h for a sample.
#include <fmt/format.h>

#include <cctype>
#include <cmath>
#include <map>
#include <variant>

#include "ir/base/printable.h"
#include "ir/graph/graph.h"
#include "ir/graph/ops.h"
#include "ir/graph/text.h"

namespace kiln::graph {
namespace {

std::string Quoted(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return '"' + Printable(out) + '"';
}

bool IsWord(std::string_view text) {
  if (text.empty() || std::isdigit(static_cast<unsigned char>(text[0]))) return false;
  for (const char c : text) {
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '_') return false;
  }
  return true;
}

std::string ListText(const Dims& values) { return fmt::format("[{}]", fmt::join(values, ",")); }

void PrintField(std::string& out, const char* name, const Dims& value, const Dims&) {
  out += fmt::format(" {}={}", name, ListText(value));
}
void PrintField(std::string& out, const char* name, double value, double otherwise) {
  if (value != otherwise) out += fmt::format(" {}={}", name, DoubleText(value));
}
void PrintField(std::string& out, const char* name, bool value, bool otherwise) {
  if (value) out += fmt::format(" {}", name);
  if (!value && otherwise) out += fmt::format(" {}=false", name);
}
void PrintField(std::string& out, const char* name, int64_t value, int64_t otherwise) {
  if (value != otherwise) out += fmt::format(" {}={}", name, value);
}
template <class E>
  requires std::is_enum_v<E>
void PrintField(std::string& out, const char* name, E value, E) {
  out += fmt::format(" {}={}", name, Text(value));
}

template <class A>
void PrintAttrs(std::string& out, const A& attrs) {
  const A defaults;
  std::apply(
      [&](auto... row) {
        (PrintField(out, row.name, attrs.*row.member, defaults.*row.member), ...);
      },
      A::Fields());
}

// `op` of an identity says nothing.
void PrintAttrs(std::string& out, const MapAttrs& attrs) {
  if (!attrs.identity || attrs.op != MapAttrs{}.op) PrintField(out, "op", attrs.op, attrs.op);
  PrintField(out, "identity", attrs.identity, false);
}

void PrintTensor(std::string& out, const Tensor& t) {
  out += fmt::format("  tensor %{}", t.name);
  if (t.uid != Tensor{}.uid) out += fmt::format(" uid={}", t.uid);
  out += fmt::format(" {}", Info(t.dtype).text);
  if (!t.dims.empty()) out += ' ' + ListText(t.dims);
  if (!t.strides.empty()) out += " strides=" + ListText(t.strides);
  if (t.alignment != Tensor{}.alignment) out += fmt::format(" align={}", t.alignment);
  if (t.is_virtual) out += " virtual";
  if (t.by_value) out += " by_value";
  if (t.value) out += " value=" + DoubleText(*t.value);
  out += '\n';
}

std::string OperandList(const Graph& graph, const std::vector<TensorId>& ids) {
  std::string out;
  for (const TensorId id : ids) {
    if (!out.empty()) out += ", ";
    out += id == kAbsent ? std::string(kAbsentText) : fmt::format("%{}", graph[id].name);
  }
  return out;
}

void PrintNode(std::string& out, const Graph& graph, const Node& node) {
  out +=
      fmt::format("  {} = {}({}) compute={}", OperandList(graph, node.outputs),
                  Info(node.op).mnemonic, OperandList(graph, node.inputs), Info(node.compute).text);
  std::visit([&](const auto& attrs) { PrintAttrs(out, attrs); }, node.attrs);
  if (!node.name.empty()) out += " name=" + Quoted(node.name);
  out += '\n';
}

}  // namespace

std::string DoubleText(double value) {
  return std::isnan(value) ? "nan" : fmt::format("{}", value);
}

std::string Print(const Graph& graph) {
  std::string out =
      fmt::format("graph {} {{\n", IsWord(graph.name) ? graph.name : Quoted(graph.name));
  for (const Tensor& tensor : graph.tensors) PrintTensor(out, tensor);
  for (const Node& node : graph.nodes) PrintNode(out, graph, node);
  return out + "}\n";
}

std::string CanonicalText(const Graph& graph) { return Canonicalize(graph).text; }

Canonical Canonicalize(const Graph& graph) {
  Graph canonical;
  std::vector<int64_t> uids;
  std::vector<TensorId> new_id(graph.tensors.size(), kAbsent);
  std::map<int64_t, int64_t> new_uid;
  const auto renumber = [&](TensorId id) {
    if (id == kAbsent) return kAbsent;
    TensorId& to = new_id[static_cast<size_t>(id)];
    if (to != kAbsent) return to;
    to = static_cast<TensorId>(canonical.tensors.size());
    Tensor tensor = graph[id];
    tensor.name = fmt::format("t{}", to);
    if (tensor.is_virtual) tensor.uid = -1;
    if (tensor.uid >= 0) {
      const auto [entry, is_new] =
          new_uid.try_emplace(tensor.uid, static_cast<int64_t>(uids.size()));
      if (is_new) uids.push_back(tensor.uid);
      tensor.uid = entry->second;
    }
    for (size_t d = 0; d < tensor.dims.size() && d < tensor.strides.size(); ++d) {
      if (tensor.dims[d] == 1) tensor.strides[d] = 1;
    }
    canonical.tensors.push_back(std::move(tensor));
    return to;
  };
  for (Node node : graph.nodes) {
    for (TensorId& id : node.inputs) id = renumber(id);
    for (TensorId& id : node.outputs) id = renumber(id);
    node.name.clear();
    canonical.nodes.push_back(std::move(node));
  }
  return {.text = Print(canonical), .uids = std::move(uids)};
}

}  // namespace kiln::graph
