#include "cli/memory.h"

#include <sys/resource.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <limits>
#include <optional>

#include "ir/shape.h"

namespace kiln::cli {
namespace {

constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max();
constexpr int64_t kPage = 4096;

int64_t Sum(int64_t a, int64_t b) { return a > kUnlimited - b ? kUnlimited : a + b; }
int64_t Times(int64_t a, int64_t b) {
  int64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? kUnlimited : product;
}

// The number at the start of a file; none where a control group has "max".
std::optional<int64_t> NumberIn(const std::string& path) {
  std::ifstream file(path);
  int64_t value = 0;
  if (!(file >> value)) return std::nullopt;
  return value;
}

// "MemAvailable:  123 kB".
int64_t MachineBytes(const std::string& root) {
  std::ifstream file(root + "/proc/meminfo");
  for (std::string line; std::getline(file, line);) {
    const size_t digit = line.find_first_of("0123456789");
    int64_t kilobytes = 0;
    if (!line.starts_with("MemAvailable:") || digit == std::string::npos) continue;
    std::from_chars(line.data() + digit, line.data() + line.size(), kilobytes);
    return Times(kilobytes, 1024);
  }
  return kUnlimited;
}

// The bytes of a group's file cache, which can be given back although memory.current counts them.
int64_t CacheBytes(const std::string& folder) {
  std::ifstream file(folder + "/memory.stat");
  int64_t cache = 0, value = 0;
  for (std::string key; file >> key >> value;)
    if (key == "active_file" || key == "inactive_file") cache += value;
  return cache;
}

int64_t GroupRoom(const std::string& folder, const char* limit, const char* used) {
  const std::optional<int64_t> most = NumberIn(folder + "/" + limit);
  if (!most) return kUnlimited;
  const int64_t taken = NumberIn(folder + "/" + used).value_or(0) - CacheBytes(folder);
  return std::max<int64_t>(*most - std::max<int64_t>(taken, 0), 0);
}

// The room of the process's group and of each group above it. In a container the mount shows the
// container's group as the root, whatever the path says.
int64_t GroupsRoom(const std::string& root) {
  std::ifstream file(root + "/proc/self/cgroup");
  int64_t room = kUnlimited;
  for (std::string line; std::getline(file, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const bool is_v2 = controllers.empty();
    if (!is_v2 && controllers != "memory") continue;
    const std::string mount = root + "/sys/fs/cgroup" + (is_v2 ? "" : "/memory");
    for (std::string path = line.substr(second + 1);; path.resize(path.rfind('/'))) {
      if (path == "/") path.clear();
      const std::string folder = mount + path;
      room = std::min(room,
                      is_v2 ? GroupRoom(folder, "memory.max", "memory.current")
                            : GroupRoom(folder, "memory.limit_in_bytes", "memory.usage_in_bytes"));
      if (path.find('/') == std::string::npos) break;
    }
  }
  return room;
}

int64_t AddressRoom(const std::string& root) {
  rlimit limit = {};
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return kUnlimited;
  const int64_t taken = Times(NumberIn(root + "/proc/self/statm").value_or(0), kPage);
  return std::max<int64_t>(static_cast<int64_t>(limit.rlim_cur) - taken, 0);
}

int64_t ValueBytes(const graph::Tensor& tensor) {
  return Times(NumElements(tensor.dims), sizeof(double));
}

}  // namespace

int64_t AvailableBytes(const std::string& root) {
  return std::min({MachineBytes(root), GroupsRoom(root), AddressRoom(root)});
}

int64_t RunBytes(const graph::Graph& graph, int64_t workspace_bytes, bool host_is_device) {
  const int64_t copies = host_is_device ? 2 : 1;
  int64_t bytes = host_is_device ? workspace_bytes : 0;
  for (const graph::TensorId id : graph::Inputs(graph)) {
    bytes = Sum(bytes, ValueBytes(graph[id]));
    bytes = Sum(bytes, Times(copies, graph::MemoryBytes(graph[id])));
  }
  for (const graph::TensorId id : graph::Outputs(graph))
    bytes = Sum(bytes, Times(copies, graph::MemoryBytes(graph[id])));
  return bytes;
}

int64_t CheckBytes(const graph::Graph& graph) {
  int64_t bytes = 0, largest = 0;
  std::vector<bool> is_given(graph.tensors.size(), false);
  for (const graph::TensorId id : graph::Inputs(graph)) is_given[static_cast<size_t>(id)] = true;
  for (size_t t = 0; t < graph.tensors.size(); ++t) {
    const int64_t own = ValueBytes(graph.tensors[t]);
    largest = std::max(largest, own);
    // Inputs have their values already, and the disturbed run copies those that it reads.
    bytes = Sum(bytes, is_given[t] ? own : Times(2, own));
  }
  return Sum(bytes, Times(2, largest));
}

}  // namespace kiln::cli
