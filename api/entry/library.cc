// Questions to the library: versions, properties, error strings, callbacks. Reference 3.2.41
// to 3.2.44, 3.2.54, 3.2.63, 3.2.79 and the version checks of every sub-library, which here are
// always of one version.
#include <algorithm>
#include <cstring>
#include <string>

#include "api/entry/entry.h"
#include "api/lifecycle/core.h"
#include "api/spec/generation.h"

namespace api = kiln::api;

namespace {

kiln::Status Property(int type, int* value) {
  const api::SaidVersion version = api::VersionThatIsSaid();
  if (value == nullptr)
    return kiln::Status::Text(kiln::Code::kBadParam, "the place for the value is NULL");
  switch (type) {
    case MAJOR_VERSION:
      *value = version.major;
      return {};
    case MINOR_VERSION:
      *value = version.minor;
      return {};
    case PATCH_LEVEL:
      *value = version.patch;
      return {};
    default:
      return kiln::Status::Error(kiln::Code::kBadParam, "{} is no libraryPropertyType", type);
  }
}

kiln::Status OneVersion() { return {}; }

}  // namespace

extern "C" {

KILN_EXPORT size_t cudnnGetVersion(void) {
  api::Entry("cudnnGetVersion", OneVersion);  // the first call of most programs, for the log
  return static_cast<size_t>(api::VersionThatIsSaid().number);
}

KILN_EXPORT size_t cudnnGetMaxDeviceVersion(void) { return CUDNN_MAX_DEVICE_VERSION; }

KILN_EXPORT size_t cudnnGetCudartVersion(void) {
  int64_t version = 0;
  api::Entry("cudnnGetCudartVersion", [&] {
    version = api::CudaRuntimeVersion();
    return kiln::Status();
  });
  return static_cast<size_t>(version);
}

KILN_EXPORT cudnnStatus_t cudnnGetProperty(libraryPropertyType type, int* value) {
  return api::Entry(
      "cudnnGetProperty", [&] { return Property(api::Number(type), value); }, type, value);
}

KILN_EXPORT const char* cudnnGetErrorString(cudnnStatus_t status) {
  // The names are literals, so data() ends with NUL.
  return api::ThisGeneration().status_name(api::Number(status)).data();
}

KILN_EXPORT cudnnStatus_t cudnnSetCallback(unsigned mask, void* udata, cudnnCallback_t fptr) {
  return api::Entry(
      "cudnnSetCallback",
      [&] { return api::SetCallback(mask, udata, reinterpret_cast<api::AnyFunction>(fptr)); }, mask,
      udata, fptr);
}

KILN_EXPORT cudnnStatus_t cudnnGetCallback(unsigned* mask, void** udata, cudnnCallback_t* fptr) {
  return api::Entry(
      "cudnnGetCallback",
      [&] { return api::GetCallback(mask, udata, reinterpret_cast<api::AnyFunction*>(fptr)); },
      mask, udata, fptr);
}

#if CUDNN_MAJOR == 8

KILN_EXPORT cudnnStatus_t cudnnOpsInferVersionCheck(void) {
  return api::Entry("cudnnOpsInferVersionCheck", OneVersion);
}
KILN_EXPORT cudnnStatus_t cudnnOpsTrainVersionCheck(void) {
  return api::Entry("cudnnOpsTrainVersionCheck", OneVersion);
}
KILN_EXPORT cudnnStatus_t cudnnCnnInferVersionCheck(void) {
  return api::Entry("cudnnCnnInferVersionCheck", OneVersion);
}
KILN_EXPORT cudnnStatus_t cudnnCnnTrainVersionCheck(void) {
  return api::Entry("cudnnCnnTrainVersionCheck", OneVersion);
}
KILN_EXPORT cudnnStatus_t cudnnAdvInferVersionCheck(void) {
  return api::Entry("cudnnAdvInferVersionCheck", OneVersion);
}
KILN_EXPORT cudnnStatus_t cudnnAdvTrainVersionCheck(void) {
  return api::Entry("cudnnAdvTrainVersionCheck", OneVersion);
}

#else

KILN_EXPORT void cudnnGetLastErrorString(char* message, size_t max_size) {
  if (message == nullptr || max_size == 0) return;
  std::string text = api::TakeLastError();
  size_t length = std::min(text.size(), max_size - 1);
  std::memcpy(message, text.data(), length);
  message[length] = '\0';
}

KILN_EXPORT cudnnStatus_t cudnnGraphVersionCheck(void) {
  return api::Entry("cudnnGraphVersionCheck", OneVersion);
}
KILN_EXPORT cudnnStatus_t cudnnOpsVersionCheck(void) {
  return api::Entry("cudnnOpsVersionCheck", OneVersion);
}
KILN_EXPORT cudnnStatus_t cudnnCnnVersionCheck(void) {
  return api::Entry("cudnnCnnVersionCheck", OneVersion);
}
KILN_EXPORT cudnnStatus_t cudnnAdvVersionCheck(void) {
  return api::Entry("cudnnAdvVersionCheck", OneVersion);
}
KILN_EXPORT cudnnStatus_t cudnnSubquadraticOpsVersionCheck(void) {
  return api::Entry("cudnnSubquadraticOpsVersionCheck", OneVersion);
}

#endif

}  // extern "C"
