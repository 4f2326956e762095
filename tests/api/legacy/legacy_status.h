// Answers of legacy calls, of either generation: 9 has finer statuses, by the thousand.
#pragma once

#include <cudnn.h>

inline constexpr cudnnStatus_t kOk = CUDNN_STATUS_SUCCESS;

inline bool IsBadParam(cudnnStatus_t status) {
  return CUDNN_MAJOR == 8 ? status == CUDNN_STATUS_BAD_PARAM : status / 1000 == 2;
}
inline bool IsNotSupported(cudnnStatus_t status) {
  return CUDNN_MAJOR == 8 ? status == CUDNN_STATUS_NOT_SUPPORTED : status / 1000 == 3;
}
