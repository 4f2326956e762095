#include "api/backend/operation_graph.h"

namespace kiln::api {
namespace {

Result<int64_t> EngineCountOf(const OperationGraphDesc& d) {
  ASSIGN_OR_RETURN(std::shared_ptr<Session> session, d.SessionFor());
  return std::ssize(session->EnginesOf(d.graph));
}

constexpr int64_t kMostOperations = int64_t{1} << 17;

using D = OperationGraphDesc;
constexpr AttrRow kRows[] = {
    Attr<&D::handle>(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, Use::kOptional),
    Attr<&D::operations>(CUDNN_ATTR_OPERATIONGRAPH_OPS, Use::kRequired, kMostOperations),
    Computed<D, int64_t, EngineCountOf>(CUDNN_ATTR_OPERATIONGRAPH_ENGINE_GLOBAL_COUNT),
    Attr<&D::dynamic_shape>(CUDNN_ATTR_OPERATIONGRAPH_IS_DYNAMIC_SHAPE_ENABLED, Use::kOptional),
    Attr<&D::same_topology>(CUDNN_ATTR_OPERATIONGRAPH_IS_SAME_TOPOLOGY, Use::kOptional),
    Attr<&D::override_shape>(CUDNN_ATTR_OPERATIONGRAPH_IS_OVERRIDE_SHAPE_ENABLED, Use::kOptional),
    Attr<&D::mode>(CUDNN_ATTR_OPERATIONGRAPH_MODE, Use::kOptional),
};

}  // namespace

std::span<const AttrRow> OperationGraphDesc::Rows() { return kRows; }

Status OperationGraphDesc::Finalize() {
  if (operations.empty()) return Status::Text(Code::kBadParam, "the graph has no operations");
  GraphImport import;
  for (size_t i = 0; i < operations.size(); ++i) {
    Status status = operations[i]->Import(import);
    if (!status.ok()) return std::move(status).Within(fmt::format("operation {}", i));
  }
  // A sub-graph reads what the operation that it belongs to gives it, and runs on no handle.
  if (const graph::Tensor* const loose = import.Loose();
      loose != nullptr && handle.session == nullptr) {
    by_itself = Status::Error(Code::kBadParam,
                              "no operation writes tensor {}, which is virtual: this is the "
                              "sub-graph of an operation, and no graph by itself",
                              loose->uid);
    return {};
  }
  by_itself = {};
  ASSIGN_OR_RETURN(graph, import.Finish());
  return {};
}

Result<std::shared_ptr<Session>> OperationGraphDesc::SessionFor() const {
  RETURN_IF_ERROR(by_itself);
  if (handle.session != nullptr) return handle.session;
  return OpenSession();
}

}  // namespace kiln::api
