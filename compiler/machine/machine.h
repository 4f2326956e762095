// Machine: what cost models need of a GPU beside the sizes in its Target, one row an architecture
// (compiler/machine/machine.cc). A model that is about a mechanism reads its rates here, so that a
// board which nobody has measured is ranked by its own numbers, and not by an H100's.
#pragma once

#include "ir/base/result.h"
#include "ir/target.h"

namespace kiln::compiler {

struct Machine {
  int sm_version;           // the row is for this one and those up to the next row
  double bytes_per_second;  // of memory, by a copy
  double clock;             // Hz, while tensor cores are busy
  double mma;       // multiply-adds a cycle of a multiprocessor by mma.sync, operands of 16 bits
  double mma_tf32;  // the same of TF32
  double fma;       // FMA instructions of warps that a multiprocessor issues in a cycle, in loops
  double l2_share;  // bytes a second that a multiprocessor reads of the L2 cache while all do
  int gpcs;         // the most of any board; clusters lie in one
  int cluster;      // the most blocks of one, with those that a function has to be allowed
};

const Machine& MachineOf(const Target& target);

// Bytes that a copy moves in a second; 0 where nothing is known of the device.
double BytesPerSecond(const Target& target);

// Ok where kernels of mma.sync, or of wgmma and tensor maps, run; else a sentence that says what
// the target lacks.
Status RunsOnMma(const Target& target);
Status RunsOnWgmma(const Target& target);

}  // namespace kiln::compiler
