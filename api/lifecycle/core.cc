#include "api/lifecycle/core.h"

#include "api/legacy/plans/call_plans.h"
#include "api/lifecycle/call.h"
#include "api/lifecycle/handle.h"
#include "api/lifecycle/object.h"
#include "api/spec/cudnn_types.h"

namespace kiln::api {
namespace {

// 9.19's status where a handle's own functions are given none.
Result<Handle*> HandleOrBadParam(const void* handle) {
  if (handle == nullptr) return Status::Text(Code::kBadParam, "the handle is NULL");
  return HandleFrom(handle);
}

}  // namespace

Status CreateHandle(void** out) {
  if (out == nullptr) return Status::Text(Code::kBadParam, "the place for the handle is NULL");
  ASSIGN_OR_RETURN(std::shared_ptr<Session> session, OpenSession());
  Handle* handle = Make<Handle>(out);
  if (handle == nullptr) return Status::Text(Code::kHostAllocationFailed, "no memory for a handle");
  handle->plans = &legacy::CallPlans::Of(*session);
  handle->session = std::move(session);
  return {};
}

Status DestroyHandle(void* handle) {
  if (handle == nullptr) return {};
  RETURN_IF_ERROR(HandleFrom(handle).status());
  if (!Destroy<Handle>(handle))
    return Status::Text(Code::kBadParam, "another thread destroyed the handle");
  return {};
}

Status SetStream(void* handle, void* stream) {
  ASSIGN_OR_RETURN(Handle * object, HandleOrBadParam(handle));
  object->stream = stream;
  return {};
}

Status GetStream(void* handle, void** stream) {
  ASSIGN_OR_RETURN(Handle * object, HandleOrBadParam(handle));
  if (stream == nullptr)
    return Status::Text(Code::kNullPointer, "the place for the stream is NULL");
  *stream = object->stream;
  return {};
}

Status QueryRuntimeError(void* handle, const void* answer, int mode, const void* tag, int& found) {
  ASSIGN_OR_RETURN(Handle * object, HandleOrBadParam(handle));
  if (answer == nullptr) return Status::Text(Code::kBadParam, "the place for the status is NULL");
  if (tag != nullptr) return Status::Text(Code::kBadParam, "tag is reserved and must be NULL");
  if (mode < CUDNN_ERRQUERY_RAWCODE || mode > CUDNN_ERRQUERY_BLOCKING) {
    return Status::Error(Code::kBadParam, "{} is no cudnnErrQueryMode_t", mode);
  }
  const Status fault = object->session->TakeFault();
  found = fault.ok() ? 0 : Fail("cudnnQueryRuntimeError", fault);
  return {};
}

}  // namespace kiln::api
