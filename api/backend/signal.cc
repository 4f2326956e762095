#include "api/backend/signal.h"

namespace kiln::api {
namespace {

constexpr AttrRow kRows[] = {
    Attr<&SignalDesc::mode>(CUDNN_ATTR_OPERATION_SIGNAL_MODE, Use::kOptional),
    Attr<&SignalDesc::flag>(CUDNN_ATTR_OPERATION_SIGNAL_FLAGDESC, Use::kOptional),
    Attr<&SignalDesc::value>(CUDNN_ATTR_OPERATION_SIGNAL_VALUE, Use::kOptional),
    Attr<&SignalDesc::x>(CUDNN_ATTR_OPERATION_SIGNAL_XDESC, Use::kOptional),
    Attr<&SignalDesc::y>(CUDNN_ATTR_OPERATION_SIGNAL_YDESC, Use::kOptional),
};

}  // namespace

std::span<const AttrRow> SignalDesc::Rows() { return kRows; }

Status SignalDesc::Import(GraphImport& import) const {
  if (flag == nullptr) return Status::Text(Code::kBadParam, "the flag is required and was not set");
  const graph::SignalAttrs attrs{.value = value};
  if (mode == CUDNN_SIGNAL_SET)
    return import.Add(graph::GraphOp::kSignalSet, {x.get()}, {flag.get(), y.get()},
                      CUDNN_DATA_FLOAT, attrs);
  if (x == nullptr || y == nullptr)
    return Status::Error(Code::kBadParam,
                         "{} is absent: a wait orders nothing but y, which is x behind it",
                         x == nullptr ? "x" : "y");
  return import.Add(graph::GraphOp::kSignalWait, {x.get(), flag.get()}, {y.get()}, CUDNN_DATA_FLOAT,
                    attrs);
}

}  // namespace kiln::api
