// A session whose one useful engine is the f64 interpreter of the graph on host memory. Tests of
// the C interface link it instead of compiler and runtime, so that a failure is the interface's.
//
// Engines: 0 declines everything, 1 is the interpreter with the knobs TILE_M (0..3) and SPLIT_K
// (0..8 in steps of 2), 2 is the interpreter without knobs. Every plan asks for 256 bytes of
// workspace, or what SetFakeWorkspace says, and writes its first byte.
#pragma once

#include "api/session/session.h"

namespace kiln::api {

inline constexpr int64_t kFakeEngines = 3;
inline constexpr int64_t kFakeWorkspace = 256;

// The fake session's cudaGraph_t.
struct FakeCudaGraph {
  const Plan* plan = nullptr;
  std::vector<void*> pointers;
  void* workspace = nullptr;
  int updates = 0;
};

// The stream of the last Execute.
void* LastFakeStream();
// Options of the last ranking, and the device that it was for.
RankOptions LastFakeRank();
Target LastFakeRankTarget();
// Plans that were built in this process.
int FakeBuilds();
// The one pointer that is another device's.
void SetFakeElsewhere(const void* pointer);
// The answer to the next question for faults of kernels.
void SetFakeFault(Status fault);
// Plans made from now on want so many bytes.
void SetFakeWorkspace(int64_t bytes);
// Sets the workspace, and that the next exploration says that rankings are others than before.
void SetFakeDiscovery(int64_t bytes);

}  // namespace kiln::api
