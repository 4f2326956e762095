#include "api/backend/later.h"

namespace kiln::api {
namespace {

constexpr const char* kReason = "Kiln does not compute this operation yet";

constexpr AttrRow kMoeRows[] = {
    Refused(CUDNN_ATTR_OPERATION_MOE_GROUPED_MATMUL_BWD_MATH_PREC, kReason),
    Refused(CUDNN_ATTR_OPERATION_MOE_GROUPED_MATMUL_BWD_TOKEN_DESC, kReason),
    Refused(CUDNN_ATTR_OPERATION_MOE_GROUPED_MATMUL_BWD_DWEIGHT_DESC, kReason),
    Refused(CUDNN_ATTR_OPERATION_MOE_GROUPED_MATMUL_BWD_FIRST_TOKEN_OFFSET_DESC, kReason),
    Refused(CUDNN_ATTR_OPERATION_MOE_GROUPED_MATMUL_BWD_DOUTPUT_DESC, kReason),
};

constexpr AttrRow kRopeFwdRows[] = {
    Refused(CUDNN_ATTR_OPERATION_ROPE_FWD_XDESC, kReason),
    Refused(CUDNN_ATTR_OPERATION_ROPE_FWD_YDESC, kReason),
    Refused(CUDNN_ATTR_OPERATION_ROPE_FWD_FREQSDESC, kReason),
    Refused(CUDNN_ATTR_OPERATION_ROPE_FWD_OUTPUT_SCALE, kReason),
    Refused(CUDNN_ATTR_OPERATION_ROPE_FWD_ROPE_DIM, kReason),
};

constexpr AttrRow kRopeBwdRows[] = {
    Refused(CUDNN_ATTR_OPERATION_ROPE_BWD_DYDESC, kReason),
    Refused(CUDNN_ATTR_OPERATION_ROPE_BWD_DXDESC, kReason),
    Refused(CUDNN_ATTR_OPERATION_ROPE_BWD_FREQSDESC, kReason),
    Refused(CUDNN_ATTR_OPERATION_ROPE_BWD_OUTPUT_SCALE, kReason),
    Refused(CUDNN_ATTR_OPERATION_ROPE_BWD_ROPE_DIM, kReason),
};

}  // namespace

template <>
std::span<const AttrRow> MoeGroupedMatmulBwdLater::Rows() {
  return kMoeRows;
}
template <>
std::span<const AttrRow> RopeFwdLater::Rows() {
  return kRopeFwdRows;
}
template <>
std::span<const AttrRow> RopeBwdLater::Rows() {
  return kRopeBwdRows;
}

}  // namespace kiln::api
