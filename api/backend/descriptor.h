// Backend descriptors: what stands behind a cudnnBackendDescriptor_t, and the table of their kinds.
//
// The public object is a small shell; its body, a struct with the attributes as members, is made at
// the first SetAttribute. A finalised body never changes and is shared: by the operations that
// refer to it, and by the shells that GetAttribute fills.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "api/spec/cudnn_types.h"
#include "ir/base/result.h"

namespace kiln::api {

struct Descriptor {
  virtual ~Descriptor() = default;
  virtual cudnnBackendDescriptorType_t type() const = 0;
  // Checks that need more than one attribute; required attributes are there already.
  virtual Status Finalize() { return {}; }

  uint64_t set_rows = 0;  // bit i: row i of the kind was set
};

template <class D>
using Ref = std::shared_ptr<const D>;

struct AttrIn {
  cudnnBackendAttributeType_t type;
  int64_t count;
  const void* data;
};

struct AttrOut {
  cudnnBackendAttributeType_t type;
  int64_t capacity;
  int64_t* count;  // may be null
  void* data;      // may be null: only the count is asked for
  void SetCount(int64_t n) const {
    if (count != nullptr) *count = n;
  }
};

enum class Use : uint8_t {
  kRequired,  // before finalize
  kOptional,
  kReadOnly,
  kRefused,  // NOT_SUPPORTED with a reason, both ways
};

struct AttrRow {
  cudnnBackendAttributeName_t name{};
  Use use = Use::kOptional;
  uint64_t types = 0;  // bit t: CUDNN_TYPE t is accepted
  int64_t limit = 0;
  const char* reason = nullptr;
  Status (*set)(Descriptor&, const AttrIn&, int64_t limit) = nullptr;
  Status (*get)(const Descriptor&, const AttrOut&) = nullptr;
};

struct Kind {
  cudnnBackendDescriptorType_t type{};
  std::span<const AttrRow> rows;
  std::shared_ptr<Descriptor> (*make)() = nullptr;
  bool read_only = false;  // the library fills it; clients neither set nor finalise it
};

// The public object.
struct Shell {
  static constexpr uint64_t kTag = 0x6b696c6e'64657363;  // "kilndesc"

  const Kind* kind = nullptr;
  std::shared_ptr<Descriptor> body;
  bool finalized = false;
};

// All kinds by type: a kind stands at the place that is its number.
std::span<const Kind> AllKinds();
// `type` is a client's number: null where it is no kind of Kiln's.
const Kind* FindKind(int type);

// A set of kinds, as the operations are.
using KindSet = uint64_t;
constexpr KindSet KindBit(cudnnBackendDescriptorType_t type) { return KindSet{1} << type; }

// Base of every kind but operations, which have their own (operation.h).
template <cudnnBackendDescriptorType_t T>
struct DescriptorOf : Descriptor {
  static constexpr cudnnBackendDescriptorType_t kType = T;
  static constexpr KindSet kKindSet = KindBit(T);
  cudnnBackendDescriptorType_t type() const override { return T; }
};

template <class D>
Kind KindOf(bool read_only = false) {
  return {.type = D::kType,
          .rows = D::Rows(),
          .make = []() -> std::shared_ptr<Descriptor> { return std::make_shared<D>(); },
          .read_only = read_only};
}

// The object, or a sentence that says what `pointer` is not.
Result<Shell*> ShellFrom(const void* pointer);

// Body of the i-th descriptor of a client's array; it must be live, of one of the kinds, and
// finalised.
Result<Ref<Descriptor>> SharedBody(const void* array, int64_t i, KindSet kinds);

// GetAttribute of descriptors: the client passes descriptors that it made, and gets them finalised
// with these bodies.
Status FillShells(std::span<const Ref<Descriptor>> bodies, const AttrOut& out);

template <class D>
Status FillDescriptors(std::span<const Ref<D>> bodies, const AttrOut& out) {
  if (out.data == nullptr || out.capacity == 0) {
    out.SetCount(static_cast<int64_t>(bodies.size()));
    return {};
  }
  std::vector<Ref<Descriptor>> erased(bodies.begin(), bodies.end());
  return FillShells(erased, out);
}

}  // namespace kiln::api
