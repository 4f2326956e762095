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
  ASSIGN_OR_RETURN(graph, import.Finish());
  return {};
}

Result<std::shared_ptr<Session>> OperationGraphDesc::SessionFor() const {
  if (handle.session != nullptr) return handle.session;
  return OpenSession();
}

}  // namespace kiln::api
