// The registry of sessions: one a device and process, and one a description, made at first use.
// They are leaked, since they hold loaded kernels, which must not be freed after the driver. Each
// map has a mutex of its own; a fork finds both free, since it waits for calls
// (lifecycle/fork_gate.h).
#include <map>
#include <mutex>

#include "api/session/device_session.h"
#include "api/session/plan_cache.h"
#include "api/session/session.h"
#include "ir/base/env.h"
#include "ir/base/log.h"
#include "runtime/cuda/nvrtc.h"
#include "runtime/device_select.h"

namespace kiln::api {

Result<std::shared_ptr<Session>> OpenSession() {
  ASSIGN_OR_RETURN(runtime::Device * device, runtime::DefaultDevice());
  static auto* const mutex = new std::mutex;
  static auto* const sessions = new std::map<runtime::Device*, std::shared_ptr<Session>>;
  std::unique_lock lock(*mutex);
  std::shared_ptr<Session>& session = (*sessions)[device];
  if (session != nullptr) return session;
  session = std::make_shared<DeviceSession>(device->target(), device);
  std::shared_ptr<Session> opened = session;
  // Without the lock: the line may go to a client's callback, which may call us.
  lock.unlock();
  LOG(kInfo, "running on {} ({})", device->target().name, device->target().arch);
  return opened;
}

Result<std::shared_ptr<Session>> OpenSessionFor(const Target& target) {
  static auto* const mutex = new std::mutex;
  static auto* const sessions = new std::map<std::string, std::shared_ptr<Session>>;
  const std::lock_guard lock(*mutex);
  std::shared_ptr<Session>& session =
      (*sessions)[KeyOf(target) + GetEnv(Env::kTune) + GetEnv(Env::kWorkspaceLimit)];
  if (session == nullptr) session = NewSessionFor(target);
  return session;
}

std::shared_ptr<Session> NewSessionFor(const Target& target) {
  return std::make_shared<DeviceSession>(target, nullptr);
}

int64_t CudaRuntimeVersion() {
  const Result<const runtime::Nvrtc*> nvrtc = runtime::ProcessNvrtc();
  return nvrtc.ok() ? (*nvrtc)->major() * 1000 + (*nvrtc)->minor() * 10 : 0;
}

}  // namespace kiln::api
