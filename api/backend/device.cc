#include "api/backend/device.h"

#include <algorithm>
#include <cstring>

#include "api/backend/config_json.h"
#include "api/backend/engine.h"

namespace kiln::api {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr const char* kCacheFormat = "kiln-kernel-cache-2";
constexpr size_t kConfigsKept = 256;
constexpr int64_t kHertz = 1000;  // of cuDNN's kHz

int64_t IntOr(const OrderedJson& json, const char* key, int64_t otherwise) {
  auto found = json.find(key);
  return found != json.end() && found->is_number_integer() ? found->get<int64_t>() : otherwise;
}

// The keys are cuDNN's, so that its JSON is read too; those that start with "kiln" are ours.
std::string WriteTarget(const Target& t) {
  OrderedJson json{{"kilnArch", t.arch},
                   {"kilnDevice", t.is_cuda() ? "cuda" : "cpu"},
                   {"deviceName", t.name},
                   {"deviceVer", t.sm_version * 10},
                   {"multiProcessorCount", t.multiprocessors},
                   {"maxThreadsPerBlock", t.max_threads_per_block},
                   {"maxSharedMemoryPerBlockOptin", t.shared_bytes_per_block},
                   {"maxRegistersPerSM", t.registers_per_multiprocessor},
                   {"l2CacheSize", t.l2_bytes}};
  if (t.clock_hz > 0) json["smClockRateKHz"] = t.clock_hz / kHertz;
  if (t.memory_bytes_per_second > 0) json["kilnMemoryBytesPerSecond"] = t.memory_bytes_per_second;
  return json.dump();
}

// sm_90a, sm_100a …: the architecture-specific target where there is one.
std::string ArchOf(int64_t sm) { return fmt::format("sm_{}{}", sm, sm >= 90 ? "a" : ""); }

Result<Target> ReadTarget(const std::string& text) {
  ASSIGN_OR_RETURN(OrderedJson json, ParseRepresentation(text));
  int64_t version = IntOr(json, "deviceVer", 0);
  std::string arch = json.value("kilnDevice", "cuda") == "cpu"
                         ? "cpu"
                         : json.value("kilnArch", ArchOf(version / 10));
  ASSIGN_OR_RETURN(Target target, TargetFromArch(arch));
  target.name = json.value("deviceName", target.name);
  target.multiprocessors =
      static_cast<int>(IntOr(json, "multiProcessorCount", target.multiprocessors));
  target.max_threads_per_block =
      static_cast<int>(IntOr(json, "maxThreadsPerBlock", target.max_threads_per_block));
  target.shared_bytes_per_block =
      IntOr(json, "maxSharedMemoryPerBlockOptin", target.shared_bytes_per_block);
  target.registers_per_multiprocessor =
      IntOr(json, "maxRegistersPerSM", target.registers_per_multiprocessor);
  target.l2_bytes = IntOr(json, "l2CacheSize", target.l2_bytes);
  // Models do without figures that no device can have.
  constexpr int64_t kMostKilohertz = 100'000'000;
  const int64_t kilohertz = IntOr(json, "smClockRateKHz", 0);
  if (kilohertz > 0 && kilohertz <= kMostKilohertz) target.clock_hz = kilohertz * kHertz;
  target.memory_bytes_per_second = std::max<int64_t>(IntOr(json, "kilnMemoryBytesPerSecond", 0), 0);
  if (target.multiprocessors < 1 || target.max_threads_per_block < 32) {
    return Status::Error(Code::kBadParam, "a device of {} multiprocessors and {} threads a block",
                         target.multiprocessors, target.max_threads_per_block);
  }
  return target;
}

Result<std::string> TargetJson(const DevicePropDesc& d) { return WriteTarget(d.target); }
Result<std::string> CacheJson(const KernelCacheDesc& d) { return d.Json(); }
Result<int64_t> RevisionOf(const KernelCacheDesc& d) { return d.Revision(); }
Result<int64_t> EntryCountOf(const KernelCacheDesc& d) { return d.EntryCount(); }

// JSON is set as CHAR and read back as what the finalised descriptor is.
template <auto Member, class D, Result<std::string> (*Compute)(const D&)>
constexpr AttrRow JsonAttr(cudnnBackendAttributeName_t name) {
  AttrRow row = Attr<Member>(name, Use::kOptional);
  row.get = Computed<D, std::string, Compute>(name).get;
  return row;
}

// NOTE: the element is the question, an engine configuration; the count is the answer, 1 or 0.
constexpr AttrRow IsCachedRow() {
  AttrRow row{.name = CUDNN_ATTR_KERNEL_CACHE_IS_ENGINECFG_KERNEL_CACHED,
              .use = Use::kReadOnly,
              .types = uint64_t{1} << CUDNN_TYPE_BACKEND_DESCRIPTOR};
  row.get = [](const Descriptor&, const AttrOut& out) -> Status {
    if (out.data == nullptr || out.capacity != 1) {
      return Status::Text(Code::kBadParam,
                          "asks about one engine configuration, which is the element");
    }
    ASSIGN_OR_RETURN(const Ref<Descriptor> body,
                     SharedBody(out.data, 0, EngineConfigDesc::kKindSet));
    const auto& config = static_cast<const EngineConfigDesc&>(*body);
    const EngineDesc& engine = *config.engine;
    out.SetCount(engine.session->IsReady(engine.operation_graph->graph, config.Config()) ? 1 : 0);
    return {};
  };
  return row;
}

constexpr AttrRow kDeviceRows[] = {
    Attr<&DevicePropDesc::device_id>(CUDNN_ATTR_DEVICEPROP_DEVICE_ID, Use::kOptional),
    Attr<&DevicePropDesc::handle>(CUDNN_ATTR_DEVICEPROP_HANDLE, Use::kOptional),
    JsonAttr<&DevicePropDesc::json, DevicePropDesc, TargetJson>(
        CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION),
};

constexpr AttrRow kCacheRows[] = {
    Attr<&KernelCacheDesc::operation_graph>(CUDNN_ATTR_KERNEL_CACHE_OPERATION_GRAPH,
                                            Use::kOptional),
    IsCachedRow(),
    JsonAttr<&KernelCacheDesc::json, KernelCacheDesc, CacheJson>(
        CUDNN_ATTR_KERNEL_CACHE_JSON_REPRESENTATION),
    Computed<KernelCacheDesc, int64_t, RevisionOf>(CUDNN_ATTR_KERNEL_CACHE_REVISION),
    Computed<KernelCacheDesc, int64_t, EntryCountOf>(CUDNN_ATTR_KERNEL_CACHE_ENTRY_COUNT),
};

}  // namespace

std::span<const AttrRow> DevicePropDesc::Rows() { return kDeviceRows; }
std::span<const AttrRow> KernelCacheDesc::Rows() { return kCacheRows; }

Status DevicePropDesc::Finalize() {
  if (!json.empty()) {
    ASSIGN_OR_RETURN(target, ReadTarget(json));
    return {};
  }
  if (handle.session != nullptr) {
    target = handle.session->target();
    return {};
  }
  if (device_id != 0) {
    return Status::Error(Code::kNotSupported,
                         "device {}: Kiln describes the calling thread's device, as number 0",
                         device_id);
  }
  ASSIGN_OR_RETURN(std::shared_ptr<Session> session, OpenSession());
  target = session->target();
  return {};
}

Status KernelCacheDesc::Finalize() {
  if (json.empty()) return {};
  ASSIGN_OR_RETURN(const OrderedJson parsed, ParseRepresentation(json));
  const OrderedJson configs = parsed.value("configurations", OrderedJson());
  if (parsed.value("format", OrderedJson()) != kCacheFormat || !configs.is_array()) {
    return Status::Error(Code::kSerializationVersionMismatch,
                         "the kernel cache was not written as {}", kCacheFormat);
  }
  std::vector<EngineConfig> read;
  for (const OrderedJson& config : configs) {
    ASSIGN_OR_RETURN(EngineConfig one, ReadConfig(config));
    read.push_back(std::move(one));
  }
  // Without a device they wait for the first plan, which brings its own.
  const Result<std::shared_ptr<Session>> session =
      operation_graph != nullptr ? operation_graph->SessionFor() : OpenSession();
  for (const EngineConfig& config : read) {
    if (session.ok()) (*session)->Remember(config);
  }
  const std::lock_guard lock(mutex_);
  configs_ = std::move(read);
  return {};
}

void KernelCacheDesc::Add(Session& session, const EngineConfig& config) const {
  session.Remember(config);
  const std::lock_guard lock(mutex_);
  // One that is there becomes the youngest, which is no change of what is held.
  if (std::erase(configs_, config) == 0) ++revision_;
  configs_.push_back(config);
  if (configs_.size() <= kConfigsKept) return;
  configs_.erase(configs_.begin());
  ++revision_;
}

int64_t KernelCacheDesc::Revision() const {
  const std::lock_guard lock(mutex_);
  return revision_;
}

int64_t KernelCacheDesc::EntryCount() const {
  const std::lock_guard lock(mutex_);
  return std::ssize(configs_);
}

Result<std::string> KernelCacheDesc::Json() const {
  OrderedJson out{{"format", kCacheFormat}};
  auto& configs = out["configurations"] = OrderedJson::array();
  const std::lock_guard lock(mutex_);
  for (const EngineConfig& config : configs_) WriteConfig(config, configs.emplace_back());
  return out.dump();
}

}  // namespace kiln::api
