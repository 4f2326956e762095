// Sequences of calls to the legacy API, as a client that is out of its mind makes them: any
// function of the interface with handles and descriptors that are there, of another kind, destroyed
// or never made, with numbers and enumerators at random, sizes up to 2^63, pointers that are null.
// Between them all descriptors are set so that they fit, so that calls get to graphs and plans. Any
// status is right; a crash, a refusal without a sentence, or a wrong byte is not.
//
// The functions are those of api/spec/legacy.tsv, by tools/gen_api.py. Memory handed over is as
// long as the role says, since no library could tell.
#pragma once

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "api/legacy/functions.h"
#include "api/lifecycle/call.h"
#include "api/lifecycle/core.h"
#include "include/v9/cudnn_gnn_ops.h"
#include "tests/fuzz/bytes.h"
#include "tests/fuzz/fuzz.h"

namespace kiln::fuzz {

// Memory on the device, as calls get it: null where they could compute on it.
enum class DeviceMemory : uint8_t { kNull, kAny };

class LegacyCalls {
 public:
  LegacyCalls(Bytes bytes, DeviceMemory memory) : bytes_(bytes), memory_(memory) {
    Require(api::CreateHandle(&handle_).ok(), "no handle");
    for (const auto& [name, function] : Functions())
      if (name.starts_with("Create")) Invoke(name);
  }
  ~LegacyCalls() {
    for (auto& [type, objects] : objects_)
      for (void* object : objects) Destroy(type, object);
    api::DestroyHandle(handle_).ok();
  }
  LegacyCalls(const LegacyCalls&) = delete;

  void Run() {
    for (int steps = 0; !bytes_.empty() && steps < 300; ++steps) {
      if (bytes_.Below(16) == 0) {
        FitAndCompute();
        continue;
      }
      const size_t index = static_cast<size_t>(bytes_.Byte()) << 8 | bytes_.Byte();
      auto function = Functions().begin();
      std::advance(function, index % Functions().size());
      Invoke(function->first);
    }
  }

  // Successes by function, of all sequences: what was reached.
  static std::map<std::string, int>& Successes() {
    static std::map<std::string, int> successes;
    return successes;
  }
  static size_t Count() { return Functions().size(); }

 private:
  struct Parameter {
    std::string type, name, role, size;
    bool is_array = false;  // of objects that are created or destroyed
  };
  struct Function {
    std::vector<Parameter> parameters;
    std::function<int(LegacyCalls&, const Function&)> call;
    Status (*of_one_object)(void*) = nullptr;
  };
  static constexpr size_t kRegion = 8192, kWritten = 1024, kMost = 40;
  static constexpr std::byte kGuard{0xA5};

  static Function Parse(std::string_view text) {
    Function function;
    while (!text.empty()) {
      const size_t end = std::min(text.find("; "), text.size());
      const std::string_view one = text.substr(0, end);
      const size_t equal = one.find('='), space = one.rfind(' ', equal);
      const size_t bracket = one.find('[', equal);
      Parameter p;
      p.type = one.substr(0, space);
      p.name = one.substr(space + 1, equal - space - 1);
      p.role = one.substr(equal + 1, std::min(bracket, one.size()) - equal - 1);
      p.is_array = bracket != std::string_view::npos;
      if (p.is_array) p.size = one.substr(bracket + 1, one.size() - bracket - 2);
      while (p.type.ends_with('*') || p.type.ends_with(' ')) p.type.pop_back();
      if (p.type.starts_with("const ")) p.type.erase(0, 6);
      function.parameters.push_back(std::move(p));
      text.remove_prefix(std::min(end + 2, text.size()));
    }
    return function;
  }

  template <class... Args>
  static Function Row(const char* name, Status (*core)(Args...), std::string_view roles) {
    Function function = Parse(roles);
    Require(function.parameters.size() == sizeof...(Args), "{} has other parameters", name);
    if constexpr (std::is_same_v<std::tuple<Args...>, std::tuple<void*>>)
      function.of_one_object = core;
    function.call = [name, core](LegacyCalls& self, const Function& f) {
      // Braces: in the order of the parameters.
      const auto arguments = [&]<size_t... kAt>(std::index_sequence<kAt...>) {
        return std::tuple<Args...>{self.Argument<Args>(f, kAt)...};
      }(std::index_sequence_for<Args...>{});
      return api::RunEntry(name, [&] { return std::apply(core, arguments); });
    };
    return function;
  }

  static const std::map<std::string, Function>& Functions() {
    static const std::map<std::string, Function> functions = {
#define LEGACY_FUNCTION(name, roles) {#name, Row(#name, &api::legacy::name, roles)},
#include "api/spec/legacy_roles.inc"
#undef LEGACY_FUNCTION
    };
    return functions;
  }

  // ---- arguments

  std::byte* RegionOf(size_t parameter) { return arena_.data() + parameter * kRegion; }

  // An object of the type; sometimes one of another, a destroyed one, or none.
  void* Object(const std::string& type) {
    if (type == "cudnnHandle_t") return bytes_.Below(128) == 0 ? Wrong() : handle_;
    return bytes_.Below(96) == 0 ? Wrong() : objects_[type][bytes_.Below(kEach)];
  }
  void* Wrong() {
    switch (bytes_.Below(5)) {
      case 0:
        return nullptr;
      case 1:
        return destroyed_;
      case 2:
        return handle_;
      case 3:
        return arena_.data() + bytes_.Below(64);
      default: {
        auto any = objects_.begin();
        std::advance(any, bytes_.Below(std::max<size_t>(objects_.size(), 1)));
        return any == objects_.end() ? nullptr : any->second[0];
      }
    }
  }

  void FillWithNumbers(const std::string& type, std::byte* at) {
    for (size_t i = 0; i < 16; ++i) {
      const int64_t value = bytes_.Byte() < 240 ? 1 + static_cast<int64_t>(i % 3) : bytes_.Number();
      const auto narrow = static_cast<int32_t>(value);
      const auto real = static_cast<float>(value);
      if (type == "void" || type == "float")
        std::memcpy(at + 4 * i, &real, 4);
      else
        std::memcpy(at + 4 * i, &narrow, 4);
    }
    if (type == "cudnnGnnCscGraph_t" && bytes_.Below(8) != 0) FillWithGraph(at);
  }

  // Small numbers of nodes and edges, and lists that are there or not.
  void FillWithGraph(std::byte* at) {
    cudnnGnnCscGraph_t graph = {.nSrcNodes = 3, .nDstNodes = 2, .nIndices = 4};
    graph.idxType = bytes_.Below(2) == 0 ? CUDNN_DATA_INT32 : CUDNN_DATA_INT64;
    const auto list = [&](uint32_t absent) -> const void* {
      return bytes_.Below(absent) == 0 ? nullptr : arena_.data();
    };
    graph.cscOffsets = list(32);
    graph.cscIndices = list(32);
    graph.mapCscToCoo = list(2);
    graph.mapRevToCoo = list(2);
    graph.cscRevOffsets = list(2);
    std::memcpy(at, &graph, sizeof graph);
  }

  // One again and again, but for one of the first.
  void FillWithObjects(const std::string& type, std::byte* at) {
    void *const most = Object(type), *const other = Object(type);
    const size_t odd = bytes_.Below(4);
    for (size_t k = 0; k < size_t{kMostCounted} / 2; ++k)
      std::memcpy(at + 8 * k, k == odd ? &other : &most, 8);
  }

  template <class T>
  T Argument(const Function& function, size_t i) {
    const Parameter& p = function.parameters[i];
    if constexpr (std::is_pointer_v<T>) {
      return reinterpret_cast<T>(const_cast<void*>(Pointer(p, i)));
    } else if constexpr (std::is_floating_point_v<T>) {
      return static_cast<T>(bytes_.Number()) / 4;
    } else {
      const uint8_t shape = bytes_.Byte();
      int64_t value = shape < 200 ? shape % 3 : bytes_.Number();
      // The client's arrays of objects are as long as it says.
      for (const Parameter& other : function.parameters)
        if (other.is_array && (other.role == "create" || other.role == "destroy"))
          value = value % 9;
      if (CountsMemory(function, p.name)) value = value % kMostCounted;
      // A CTC loss of any size needs work space, and there is no more than this.
      if (p.name == "workSpaceSizeInBytes" && Takes(function, "cudnnCTCLossDescriptor_t"))
        value = value & static_cast<int64_t>(kWritten - 1);
      return static_cast<T>(value);
    }
  }

  // True if the number says how much memory of the host's the client has, which no library could
  // tell. Counts of dims are bounded by the library, whatever they are.
  static bool CountsMemory(const Function& function, const std::string& name) {
    return !name.starts_with("nb") &&
           std::ranges::any_of(function.parameters, [&](const Parameter& p) {
             return p.size == name && !p.role.starts_with("device");
           });
  }

  static bool Takes(const Function& function, std::string_view type) {
    return std::ranges::any_of(function.parameters,
                               [&](const Parameter& p) { return p.type == type; });
  }

  const void* Pointer(const Parameter& p, size_t i) {
    std::byte* const region = RegionOf(i);
    std::fill_n(region, kRegion, kGuard);
    if (p.role.starts_with("device"))
      return memory_ == DeviceMemory::kNull || bytes_.Below(96) == 0 ? nullptr : region;
    if (p.role == "read" || p.role == "set" || (p.role == "destroy" && !p.is_array))
      return Object(p.type);
    if (p.role == "destroy") {
      for (size_t k = 0; k < 16; ++k) {
        void* const object = Object(p.type);
        std::memcpy(region + 8 * k, &object, 8);
      }
      return region;
    }
    // A struct that the public function takes by value is always there.
    if (p.role != "value" && bytes_.Below(96) == 0) return nullptr;
    if (p.role == "in" && objects_.contains(p.type))
      FillWithObjects(p.type, region);
    else
      FillWithNumbers(p.type, region);
    return region;
  }

  // ---- calls

  void Invoke(const std::string& name) {
    const Function& function = Functions().at(name);
    Require(function.parameters.size() <= kMost, "{} has too many parameters", name);
    api::TakeLastError();
    const int status = function.call(*this, function);
    Successes()[name] += status == 0;
    if (status != 0)
      Require(api::TakeLastError().size() > 10, "{} returns {} without a sentence", name, status);
    for (size_t i = 0; i < function.parameters.size(); ++i) {
      const Parameter& p = function.parameters[i];
      if (p.role == "value") continue;
      if (p.role == "create" && status == 0) Keep(p.type, i);
      if (p.role == "destroy" && status == 0) Forget(p, i);
      if (p.role != "out" && p.role != "create" && p.role != "in") continue;
      const std::byte* const region = RegionOf(i);
      Require(region[0] == kGuard || std::all_of(region + kWritten, region + kRegion,
                                                 [](std::byte b) { return b == kGuard; }),
              "{} writes behind {}", name, p.name);
    }
  }

  void Keep(const std::string& type, size_t i) {
    void* object = nullptr;
    std::memcpy(&object, RegionOf(i), 8);
    auto& objects = objects_[type];
    void*& slot = objects[next_[type]++ % kEach];
    Destroy(type, slot);
    slot = object;
  }
  // Notes objects as gone. It need not be known which: destroyed ones are used again.
  void Forget(const Parameter& p, size_t i) {
    if (p.is_array) std::memcpy(&destroyed_, RegionOf(i), 8);
    for (void* object : objects_[p.type]) destroyed_ = object;
  }
  // cudnnTensorDescriptor_t has DestroyTensorDescriptor.
  static void Destroy(const std::string& type, void* object) {
    if (object == nullptr) return;
    const auto function = Functions().find("Destroy" + type.substr(5, type.size() - 7));
    if (function != Functions().end() && function->second.of_one_object != nullptr)
      function->second.of_one_object(object).ok();
  }

  // All that computes, on descriptors that fit.
  void FitAndCompute() {
    for (int i = 0; i < static_cast<int>(kEach); ++i) {
      for (const auto& [name, function] : Functions())
        if (name.starts_with("Create")) Invoke(name);
    }
    Fit();
    for (const auto& [name, function] : Functions()) {
      const bool computes = std::ranges::any_of(
          function.parameters, [](const Parameter& p) { return p.role.starts_with("device"); });
      if (computes || name.starts_with("GetConvolution")) Invoke(name);
    }
  }

  // Everything fits: images of one size, a filter for them.
  void Fit() {
    namespace legacy = api::legacy;
    static constexpr int kTypes[] = {0, 0, 2, 1, 3, 9};
    const int type = kTypes[bytes_.Below(std::size(kTypes))];
    const int channels = 1 + static_cast<int>(bytes_.Below(4)),
              extent = 3 + static_cast<int>(bytes_.Below(3));
    const int format = static_cast<int>(bytes_.Below(2));
    for (void* tensor : objects_["cudnnTensorDescriptor_t"]) {
      if (bytes_.Below(8) == 0)
        legacy::SetTensor4dDescriptor(tensor, format, type, 1, channels, 1, 1).ok();
      else
        legacy::SetTensor4dDescriptor(tensor, format, type, 2, channels, extent, extent).ok();
    }
    for (void* filter : objects_["cudnnFilterDescriptor_t"])
      legacy::SetFilter4dDescriptor(filter, type, format, channels, channels, 3, 3).ok();
    for (void* conv : objects_["cudnnConvolutionDescriptor_t"])
      legacy::SetConvolution2dDescriptor(conv, 1, 1, 1, 1, 1, 1, 1, 0).ok();
    if (bytes_.Below(4) == 0) FitNetworks();
    for (void* activation : objects_["cudnnActivationDescriptor_t"])
      legacy::SetActivationDescriptor(activation, static_cast<int>(bytes_.Below(5)), 0, 1).ok();
    for (void* pooling : objects_["cudnnPoolingDescriptor_t"])
      legacy::SetPooling2dDescriptor(pooling, static_cast<int>(bytes_.Below(4)), 0, 3, 3, 1, 1, 1,
                                     1)
          .ok();
  }

  // Recurrent networks 4 wide on 3 steps of 2 sequences, whole or by properties; tensors are steps
  // of their data, or states.
  void FitNetworks() {
    namespace legacy = api::legacy;
    const int cell = static_cast<int>(bytes_.Below(4));
    const bool by_properties = bytes_.Below(2) == 0;
    for (void* rnn : objects_["cudnnRNNDescriptor_t"]) {
      if (by_properties)
        legacy::SetRNNDescriptor_v6(handle_, rnn, 4, 1, nullptr, 0, 0, cell, 0, 0).ok();
      else
        legacy::SetRNNDescriptor_v8(rnn, 0, cell, 2, 0, 0, 0, 0, 0, 4, 4, 4, 1, nullptr, 1).ok();
    }
    const std::array<int, 2> lengths = {3, static_cast<int>(1 + bytes_.Below(3))};
    const int layout = static_cast<int>(bytes_.Below(3));
    for (void* data : objects_["cudnnRNNDataDescriptor_t"])
      legacy::SetRNNDataDescriptor(data, 0, layout, 3, 2, 4, lengths.data(), nullptr).ok();
    const std::array<int, 3> step = {2, 4, 1}, state = {1, 2, 4}, in_step = {4, 1, 1},
                             in_state = {8, 4, 1};
    for (void* tensor : objects_["cudnnTensorDescriptor_t"]) {
      const bool is_step = bytes_.Below(2) == 0;
      legacy::SetTensorNdDescriptor(tensor, 0, 3, (is_step ? step : state).data(),
                                    (is_step ? in_step : in_state).data())
          .ok();
    }
    const std::array<int, 3> weights = {1 << 10, 1, 1};
    for (void* filter : objects_["cudnnFilterDescriptor_t"])
      legacy::SetFilterNdDescriptor(filter, 0, 0, 3, weights.data()).ok();
  }

  static constexpr size_t kEach = 3;        // objects of a type
  static constexpr int kMostCounted = 200;  // i32 in what a function may write
  Bytes bytes_;
  const DeviceMemory memory_;
  void* handle_ = nullptr;
  void* destroyed_ = nullptr;
  std::map<std::string, std::array<void*, kEach>> objects_;
  std::map<std::string, size_t> next_;
  std::vector<std::byte> arena_ = std::vector<std::byte>(kMost * kRegion);
};

}  // namespace kiln::fuzz
