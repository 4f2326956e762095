// The values of cudnnBackendKnobType_t that Kiln's knobs are shown as (abi:
// cudnnBackendKnobType_t, 9.19). The compiler must not include the API, so the numbers stand here
// once.
#pragma once

namespace kiln::compiler {

enum KnobType : int {
  kKnobSwizzle = 1,
  kKnobTileSize = 2,
  kKnobTileK = 13,
  kKnobStages = 14,
  kKnobCtaSplitKMode = 16,
  kKnobSplitKSlices = 17,
  kKnobKernelConfig = 24,
  kKnobClusterM = 27,
  kKnobBlockSize = 29,
  kKnobArraySizePerThread = 31,
  kKnobSplitCols = 33,
  kKnobTileRows = 34,
  kKnobTileCols = 35,
  kKnobLoadSize = 36,
  kKnobStreamK = 38,
  kKnobTileM = 40,
  kKnobTileN = 41,
  kKnobWarpSpecialisation = 42,
};

// Numerical notes of engines, with the values of cudnnBackendNumericalNote_t.
enum NumericalNote : int {
  kNoteTensorCore = 0,
  kNoteDownConvertInputs = 1,
  kNoteNondeterministic = 4,
  kNoteWinograd = 5,
  kNoteWinogradTile4x4 = 6,
};

// Behaviour notes of engines, with the values of cudnnBackendBehaviorNote_t.
enum BehaviorNote : int { kNoteRuntimeCompilation = 0 };

}  // namespace kiln::compiler
