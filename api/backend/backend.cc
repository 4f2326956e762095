#include "api/backend/backend.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "api/backend/descriptor.h"
#include "api/backend/execution_plan.h"
#include "api/backend/variant_pack.h"
#include "api/lifecycle/handle.h"
#include "api/lifecycle/object.h"
#include "api/spec/names.h"

namespace kiln::api {
namespace {

const AttrRow* FindRow(const Kind& kind, int name) {
  auto row =
      std::ranges::find(kind.rows, name, [](const AttrRow& r) { return static_cast<int>(r.name); });
  return row == kind.rows.end() ? nullptr : &*row;
}

// The row of the attribute, for an access with this type.
Result<const AttrRow*> RowFor(const Kind& kind, int name, int type) {
  const AttrRow* row = FindRow(kind, name);
  if (row == nullptr) {
    return Status::Error(Code::kBadParam, "{} has no attribute {}", NameOf(kind.type),
                         AttributeName(name));
  }
  if (row->use == Use::kRefused) {
    return Status::Error(Code::kNotSupported, "{}: {}", NameOf(row->name), row->reason);
  }
  if (type < 0 || type >= 64 || (row->types >> type & 1) == 0) {
    int wanted = std::countr_zero(row->types);
    return Status::Error(Code::kAttributeType, "{} has type {}, not {}", NameOf(row->name),
                         AttributeTypeName(wanted), AttributeTypeName(type));
  }
  return row;
}

Status CheckRequired(const Kind& kind, const Descriptor& body) {
  for (size_t i = 0; i < kind.rows.size(); ++i) {
    if (kind.rows[i].use == Use::kRequired && (body.set_rows >> i & 1) == 0) {
      return Status::Error(Code::kBadParam, "{} is required and was not set",
                           NameOf(kind.rows[i].name));
    }
  }
  return {};
}

template <class D>
Result<const D*> Finalized(const void* pointer) {
  ASSIGN_OR_RETURN(Shell * shell, ShellFrom(pointer));
  if (shell->kind->type != D::kType) {
    return Status::Error(Code::kDescriptorType, "a {} stands where a {} should",
                         NameOf(shell->kind->type), NameOf(D::kType));
  }
  if (!shell->finalized) {
    return Status::Error(Code::kNotFinalized, "the {} is not finalized", NameOf(shell->kind->type));
  }
  return static_cast<const D*>(shell->body.get());
}

}  // namespace

const Kind* FindKind(int type) {
  const std::span<const Kind> kinds = AllKinds();
  // There is a kind for each number from 0 on.
  if (type < 0 || static_cast<size_t>(type) >= kinds.size()) return nullptr;
  return &kinds[static_cast<size_t>(type)];
}

Result<Shell*> ShellFrom(const void* pointer) {
  if (pointer == nullptr) return Status::Text(Code::kNullPointer, "the descriptor is NULL");
  if (Shell* shell = Find<Shell>(pointer)) return shell;
  return Status::Error(Code::kBadParam, "{} is no backend descriptor, or was destroyed",
                       fmt::ptr(pointer));
}

Result<Ref<Descriptor>> SharedBody(const void* array, int64_t i, KindSet kinds) {
  void* pointer = nullptr;
  std::memcpy(&pointer, static_cast<const char*>(array) + i * static_cast<int64_t>(sizeof(void*)),
              sizeof(pointer));
  ASSIGN_OR_RETURN(Shell * shell, ShellFrom(pointer));
  if ((KindBit(shell->kind->type) & kinds) == 0) {
    return Status::Error(Code::kDescriptorType, "element {} is a {}, which does not belong here", i,
                         NameOf(shell->kind->type));
  }
  if (!shell->finalized) {
    return Status::Error(Code::kNotFinalized, "element {}, a {}, is not finalized", i,
                         NameOf(shell->kind->type));
  }
  return Ref<Descriptor>(shell->body);
}

Status FillShells(std::span<const Ref<Descriptor>> bodies, const AttrOut& out) {
  int64_t count = std::min(out.capacity, static_cast<int64_t>(bodies.size()));
  // All are checked before the first is changed.
  std::vector<Shell*> shells(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    void* pointer = nullptr;
    std::memcpy(&pointer, static_cast<char*>(out.data) + i * static_cast<int64_t>(sizeof(void*)),
                sizeof(pointer));
    Result<Shell*> shell = ShellFrom(pointer);
    if (!shell.ok()) {
      return Status::Error(shell.status().code(),
                           "element {} must be a descriptor that the caller made: {}", i,
                           shell.status().message());
    }
    cudnnBackendDescriptorType_t wanted = bodies[static_cast<size_t>(i)]->type();
    if ((*shell)->kind->type != wanted) {
      return Status::Error(Code::kDescriptorType, "element {} is a {}; the value is a {}", i,
                           NameOf((*shell)->kind->type), NameOf(wanted));
    }
    shells[static_cast<size_t>(i)] = *shell;
  }
  for (int64_t i = 0; i < count; ++i) {
    Shell& shell = *shells[static_cast<size_t>(i)];
    // The shell is finalised, so nothing writes through this pointer.
    shell.body = std::const_pointer_cast<Descriptor>(bodies[static_cast<size_t>(i)]);
    shell.finalized = true;
  }
  out.SetCount(count);
  return {};
}

Status CreateDescriptor(int type, void** out) {
  if (out == nullptr)
    return Status::Text(Code::kNullPointer, "the place for the descriptor is NULL");
  const Kind* kind = FindKind(type);
  if (kind == nullptr)
    return Status::Error(Code::kNotSupported, "Kiln has no {}", DescriptorTypeName(type));
  Shell* shell = Make<Shell>(out);
  if (shell == nullptr)
    return Status::Text(Code::kHostAllocationFailed, "no memory for a descriptor");
  shell->kind = kind;
  return {};
}

Status DestroyDescriptor(void* descriptor) {
  if (Destroy<Shell>(descriptor)) [[likely]]
    return {};
  RETURN_IF_ERROR(ShellFrom(descriptor).status());
  return Status::Text(Code::kBadParam, "another thread destroyed the descriptor");
}

Status InitializeDescriptor(void* descriptor) {
  ASSIGN_OR_RETURN(Shell * shell, ShellFrom(descriptor));
  shell->body.reset();
  shell->finalized = false;
  return {};
}

Status SetAttribute(void* descriptor, int name, int type, int64_t count, const void* elements) {
  ASSIGN_OR_RETURN(Shell * shell, ShellFrom(descriptor));
  const Kind& kind = *shell->kind;
  if (shell->finalized) {
    return Status::Error(Code::kNotInitialized, "the {} is finalized: {} cannot be set any more",
                         NameOf(kind.type), AttributeName(name));
  }
  if (kind.read_only) {
    return Status::Error(Code::kNotSupported, "a {} is filled by the library and cannot be set",
                         NameOf(kind.type));
  }
  ASSIGN_OR_RETURN(const AttrRow* row, RowFor(kind, name, type));
  if (row->use == Use::kReadOnly)
    return Status::Error(Code::kBadParam, "{} is read-only", NameOf(row->name));
  if (elements == nullptr && count != 0) {
    return Status::Error(Code::kNullPointer, "{}: the array of {} elements is NULL",
                         NameOf(row->name), count);
  }
  if (shell->body == nullptr) shell->body = kind.make();
  AttrIn in{
      .type = static_cast<cudnnBackendAttributeType_t>(type), .count = count, .data = elements};
  Status status = row->set(*shell->body, in, row->limit);
  if (!status.ok()) return std::move(status).Within(NameOf(row->name));
  shell->body->set_rows |= uint64_t{1} << (row - kind.rows.data());
  return {};
}

bool ReadsElements(const void* descriptor, int name, int type, int64_t count) {
  const Shell* shell = Find<Shell>(descriptor);
  if (shell == nullptr || shell->finalized || shell->kind->read_only) return false;
  const Result<const AttrRow*> row = RowFor(*shell->kind, name, type);
  return row.ok() && (*row)->use != Use::kReadOnly && count >= 0 && count <= (*row)->limit;
}

Status GetAttribute(const void* descriptor, int name, int type, int64_t requested, int64_t* count,
                    void* elements) {
  ASSIGN_OR_RETURN(Shell * shell, ShellFrom(descriptor));
  const Kind& kind = *shell->kind;
  if (!shell->finalized) {
    return Status::Error(Code::kNotInitialized, "the {} is not finalized: {} cannot be read",
                         NameOf(kind.type), AttributeName(name));
  }
  ASSIGN_OR_RETURN(const AttrRow* row, RowFor(kind, name, type));
  if (count == nullptr && elements == nullptr) {
    return Status::Error(Code::kNullPointer,
                         "{}: neither the count nor the elements have a place to go to",
                         NameOf(row->name));
  }
  if (requested < 0) {
    return Status::Error(Code::kBadParam, "{}: {} elements were requested", NameOf(row->name),
                         requested);
  }
  AttrOut out{.type = static_cast<cudnnBackendAttributeType_t>(type),
              .capacity = requested,
              .count = count,
              .data = elements};
  return row->get(*shell->body, out).Within(NameOf(row->name));
}

Status FinalizeDescriptor(void* descriptor) {
  ASSIGN_OR_RETURN(Shell * shell, ShellFrom(descriptor));
  const Kind& kind = *shell->kind;
  if (kind.read_only) {
    return Status::Error(Code::kNotSupported, "a {} comes finalized from the library",
                         NameOf(kind.type));
  }
  if (shell->finalized)
    return Status::Error(Code::kBadParam, "the {} is finalized already", NameOf(kind.type));
  if (shell->body == nullptr) shell->body = kind.make();
  RETURN_IF_ERROR(CheckRequired(kind, *shell->body));
  RETURN_IF_ERROR(shell->body->Finalize());
  shell->finalized = true;
  return {};
}

namespace {

// Calls use(plan, pack) with the two descriptors that every execution names.
template <class Use>
Status WithPlan(const void* handle, const void* plan, const void* variant_pack, Use&& use) {
  ASSIGN_OR_RETURN(Handle * object, HandleFrom(handle));
  ASSIGN_OR_RETURN(const ExecutionPlanDesc* plan_body, Finalized<ExecutionPlanDesc>(plan));
  ASSIGN_OR_RETURN(const VariantPackDesc* pack, Finalized<VariantPackDesc>(variant_pack));
  return use(*object, *plan_body, *pack);
}

Status FillCudaGraph(const void* handle, const void* plan, const void* variant_pack,
                     void* cuda_graph, Session::GraphUse use) {
  return WithPlan(handle, plan, variant_pack,
                  [&](const Handle& with, const ExecutionPlanDesc& body,
                      const VariantPackDesc& pack) -> Status {
                    if (cuda_graph == nullptr)
                      return Status::Text(Code::kNullPointer, "the CUDA graph is NULL");
                    return body.FillGraph(with, pack, cuda_graph, use);
                  });
}

}  // namespace

Status ExecutePlan(const void* handle, const void* plan, const void* variant_pack) {
  return WithPlan(handle, plan, variant_pack,
                  [](const Handle& with, const ExecutionPlanDesc& body,
                     const VariantPackDesc& pack) { return body.Run(with, pack); });
}

Status PlanWorkspaceSize(const void* handle, const void* plan, const void* variant_pack,
                         size_t* bytes) {
  return WithPlan(handle, plan, variant_pack,
                  [&](const Handle& with, const ExecutionPlanDesc& body,
                      const VariantPackDesc& pack) -> Status {
                    if (bytes == nullptr)
                      return Status::Text(Code::kNullPointer, "the place for the size is NULL");
                    ASSIGN_OR_RETURN(const int64_t needed, body.WorkspaceFor(with, pack));
                    *bytes = static_cast<size_t>(needed);
                    return {};
                  });
}

Status PopulateCudaGraph(const void* handle, const void* plan, const void* variant_pack,
                         void* cuda_graph) {
  return FillCudaGraph(handle, plan, variant_pack, cuda_graph, Session::GraphUse::kPopulate);
}

Status UpdateCudaGraph(const void* handle, const void* plan, const void* variant_pack,
                       void* cuda_graph) {
  return FillCudaGraph(handle, plan, variant_pack, cuda_graph, Session::GraphUse::kUpdate);
}

}  // namespace kiln::api
