// Every attribute of the interface given to every kind of descriptor as every type, on ours and on
// NVIDIA's libcudnn.so.9: what one accepts the other accepts, or a row here says why not. Needs no
// GPU; skipped where NVIDIA's library is not installed.
//
// Which status a refusal has is not compared: the reference has CUDNN_STATUS_BAD_PARAM and
// NOT_SUPPORTED for attributes of other kinds and types, and NVIDIA's kinds differ among
// themselves. tests/api/backend/nvidia_parity_test.cc compares the statuses that clients see.
#include <cudnn.h>
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "api/backend/descriptor.h"
#include "api/spec/names.h"
#include "tests/api/backend/nvidia_client.h"
#include "tests/support/nvidia_library.h"

namespace {

using kiln::testing::Client;
using kiln::testing::Library;
using kiln::testing::Raw;

struct Difference {
  int attribute;
  const char* reason;
};

constexpr auto kAnyType = "NVIDIA's takes JSON of any type for text";
constexpr auto kIntegers =
    "of real numbers NVIDIA's takes some as integers too, no client sends those";
constexpr Difference kDifferences[] = {
    {CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, kAnyType},
    {CUDNN_ATTR_KERNEL_CACHE_JSON_REPRESENTATION, kAnyType},
    {CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, kAnyType},
    {CUDNN_ATTR_MATMUL_PADDING_VALUE, kIntegers},
    {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, kIntegers},
    {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, kIntegers},
    {CUDNN_ATTR_ENGINECFG_SHARED_MEMORY_USED, "what the library says, not the client"},
    {CUDNN_ATTR_EXECUTION_PLAN_COMPUTED_INTERMEDIATE_UIDS, "the reference lets clients choose"},
    {CUDNN_ATTR_OPERATIONGRAPH_IS_SAME_TOPOLOGY, "what clients of later releases say"},
    {CUDNN_ATTR_EXECUTION_PLAN_HANDLE, "a handle that is NULL is refused when it is set"},
};

// On these NVIDIA's 9.19 crashes where it gets a descriptor of another kind.
constexpr std::array kCrashes = {
    CUDNN_ATTR_ENGINE_OPERATION_GRAPH,    CUDNN_ATTR_ENGINE_DEVICEPROP,
    CUDNN_ATTR_ENGINECFG_ENGINE,          CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH,
    CUDNN_ATTR_ENGINEHEUR_DEVICEPROP,     CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG,
    CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, CUDNN_ATTR_KERNEL_CACHE_OPERATION_GRAPH};

// True if a new descriptor takes one value of zeros, or an unfinalised tensor. `tensor` is that.
bool Accepts(const Library& lib, int kind, int attribute, int type, Raw tensor) {
  Client client(lib);
  const Raw d = client.Make(kind);
  if (client.status != CUDNN_STATUS_SUCCESS) return false;
  std::array<int64_t, 32> values{};
  if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR) values[0] = reinterpret_cast<int64_t>(tensor);
  client.SetRaw(d, attribute, type, 1, values.data());
  return client.status == CUDNN_STATUS_SUCCESS;
}

// The constants that a release has, of the interface as data.
std::set<std::string> ConstantsOf(const std::string& column) {
  std::ifstream file("tests/data/interface/enums.tsv");
  std::set<std::string> names;
  size_t at = 0;
  for (std::string line; std::getline(file, line);) {
    std::vector<std::string> cells(1);
    for (const char c : line) {
      if (c == '\t')
        cells.emplace_back();
      else
        cells.back() += c;
    }
    if (at == 0)
      at = static_cast<size_t>(std::ranges::find(cells, column) - cells.begin());
    else if (at < cells.size() && !cells[at].empty())
      names.insert(cells[1]);
  }
  return names;
}

TEST(NvidiaAttributes, WhatOneAcceptsTheOtherAccepts) {
  const std::string path = kiln::testing::NvidiaLibraryPath("");
  if (path.empty()) GTEST_SKIP() << "NVIDIA's libcudnn.so.9 is not installed";
  Library theirs(path), ours("api/libcudnn.so.9");
  ASSERT_TRUE(ours.loaded()) << dlerror();
  if (!theirs.loaded()) GTEST_SKIP() << path << " does not load: " << dlerror();
  if (theirs.version() / 100 != 919) GTEST_SKIP() << path << " is version " << theirs.version();
  Client tensors_of_theirs(theirs), tensors_of_ours(ours);
  const Raw their_tensor = tensors_of_theirs.Make(CUDNN_BACKEND_TENSOR_DESCRIPTOR),
            our_tensor = tensors_of_ours.Make(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  std::set<int> used, taken;
  int compared = 0;
  const std::set<std::string> names = ConstantsOf("value_9.19.0");
  for (const kiln::api::Kind& kind : kiln::api::AllKinds()) {
    if (!names.contains(kiln::api::NameOf(kind.type))) continue;
    for (const kiln::api::EnumName& attribute : kiln::api::AllAttributeNames()) {
      if (!names.contains(std::string(attribute.name))) continue;
      for (int type = CUDNN_TYPE_HANDLE; type <= CUDNN_TYPE_RNG_DISTRIBUTION; ++type) {
        const bool is_descriptor = type == CUDNN_TYPE_BACKEND_DESCRIPTOR;
        const bool crashes =
            is_descriptor && std::ranges::find(kCrashes, attribute.value) != kCrashes.end();
        if (crashes) continue;
        const bool ok = Accepts(ours, kind.type, attribute.value, type, our_tensor),
                   nvidia_ok = Accepts(theirs, kind.type, attribute.value, type, their_tensor);
        ++compared;
        if (nvidia_ok) taken.insert(attribute.value);
        // NVIDIA's looks at descriptors when the one that holds them is finalised.
        if (ok == nvidia_ok || (is_descriptor && nvidia_ok)) continue;
        const auto* known =
            std::ranges::find(kDifferences, attribute.value, &Difference::attribute);
        if (known != std::end(kDifferences)) {
          used.insert(attribute.value);
          continue;
        }
        ADD_FAILURE() << kiln::api::NameOf(kind.type) << " " << attribute.name << " as type "
                      << type << ": ours " << (ok ? "accepts" : "refuses") << " it, NVIDIA's "
                      << (nvidia_ok ? "accepts" : "refuses") << " it";
      }
    }
  }
  for (const Difference& difference : kDifferences)
    EXPECT_TRUE(used.contains(difference.attribute)) << difference.reason;
  EXPECT_GT(compared, 300000);
  EXPECT_GT(taken.size(), 200u) << "most attributes can be set";
}

}  // namespace
