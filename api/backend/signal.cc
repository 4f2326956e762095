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

Status SignalDesc::Import(GraphImport&) const {
  return Status::Error(Code::kNotSupported,
                       "{} {}: a plan of Kiln neither waits for other devices nor tells them; "
                       "events and cuStreamWaitValue32 around it do",
                       mode == CUDNN_SIGNAL_SET ? "setting" : "waiting for",
                       flag == nullptr ? "a flag" : flag->Text());
}

}  // namespace kiln::api
