#include "compiler/passes/group_key.h"

#include <type_traits>
#include <unordered_map>

namespace kiln::compiler {
namespace {

class KeyWriter {
 public:
  template <class T>
  void Number(const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    key_.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  template <class T>
  void List(const std::vector<T>& values) {
    Number(values.size());
    for (const T& value : values) Number(value);
  }
  void Text(const std::string& text) {
    Number(text.size());
    key_ += text;
  }

  void Add(const graph::Tensor& t) {
    Text(t.name);
    Number(t.uid < 0 ? t.uid
                     : uids_.try_emplace(t.uid, static_cast<int64_t>(uids_.size())).first->second);
    Number(t.dtype);
    List(t.dims);
    List(t.strides);
    Number(t.alignment);
    Number(t.is_virtual);
    Number(t.by_value);
    Number(t.value.has_value());
    if (t.value) Number(*t.value);
  }
  void Add(const graph::Node& node) {
    Number(node.op);
    List(node.inputs);
    List(node.outputs);
    Number(node.compute);
    std::visit([this](const auto& attrs) { AddFields(attrs); }, node.attrs);
  }

  std::string Take() { return std::move(key_); }

 private:
  template <class A>
  void AddFields(const A& attrs) {
    ForEachField(attrs, [this](const char*, const auto& value) {
      using T = std::remove_cvref_t<decltype(value)>;
      if constexpr (std::is_same_v<T, Dims>)
        List(value);
      else if constexpr (std::is_same_v<T, std::string>)
        Text(value);
      else
        Number(value);
    });
  }

  std::string key_;
  std::unordered_map<int64_t, int64_t> uids_;
};

}  // namespace

std::string GroupKey(const Group& group) {
  KeyWriter key;
  key.Number(group.kind);
  key.Number(group.moves_data);
  key.Number(group.stores_little);
  key.Number(group.engine);
  key.List(group.knobs);
  key.Number(group.graph.tensors.size());
  for (const graph::Tensor& tensor : group.graph.tensors) key.Add(tensor);
  for (const graph::Node& node : group.graph.nodes) key.Add(node);
  return key.Take();
}

}  // namespace kiln::compiler
