// Machine: the numbers of a GPU that cost models need beside the sizes in its Target. Two tables
// make it: the boards' clocks and memories, as vendors state them (ir/board.h), and what an
// architecture does in a cycle (machine.cc). Engines hold no rate of their own: what is theirs is
// the share of a rate that their kernels reach, or a number of cycles. So a board that nobody has
// measured is ranked by its own numbers, and not by an H100's.
#pragma once

#include "ir/base/result.h"
#include "ir/target.h"

namespace kiln::compiler {

// Multiply-adds that a multiprocessor makes in a cycle, by the width of operands: f16 and bf16;
// TF32; 8 bits; f64. 0: the architecture lacks the instruction, or its rate is not known.
struct TensorRates {
  double f16 = 0, tf32 = 0, bytes = 0, f64 = 0;

  double Of(int element_bytes) const {
    if (element_bytes == 1) return bytes;
    if (element_bytes == 2) return f16;
    return element_bytes == 4 ? tf32 : f64;
  }
};

struct Machine {
  int sm_version;         // of the architecture's row
  int multiprocessors;    // at least 1
  double clock;           // Hz, while all units are busy
  double memory;          // bytes a second that a copy reads and writes
  double launch_seconds;  // from one kernel's end to the next one's first instruction
  double memory_seconds;  // until what a thread asks memory for has come

  // In a cycle of a multiprocessor.
  double issue;                     // instructions of threads
  double fma, fma_f64;              // FMAs of threads, in f32 and in f64
  TensorRates mma, wgmma, tcgen05;  // mma.sync as it was measured, the others as vendors say
  double shared_bytes;              // read of or written to shared memory
  double l2_bytes;                  // read of the L2 cache while all multiprocessors do

  int gpcs;     // the most of any board; clusters lie in one
  int cluster;  // the most blocks of one, with those that a function has to be allowed

  // The seconds of a kernel that waits for memory once.
  double StartSeconds() const { return launch_seconds + memory_seconds; }
  double Seconds(double cycles) const { return cycles / clock; }
  // The bytes a second of the L2 cache for one multiprocessor.
  double l2_share() const { return l2_bytes * clock; }
  // The issue slots that an FMA takes.
  double FmaSlots(bool is_f64 = false) const { return issue / (is_f64 ? fma_f64 : fma); }
  // The cycles of one of the four tensor cores for an mma.sync of m16n8k16 with 16-bit operands.
  double MmaCycles() const { return 4 * (16 * 8 * 16) / mma.f16; }
};

// A board in the table has the table's figures, whatever its driver says, so that plans for a
// described device are those that the device itself would get. Of other boards the driver's figures
// count; where it has none, or none that can be true, they are those of the usual board of the
// architecture. Every figure is positive, but for rates of instructions that are not there.
Machine MachineOf(const Target& target);

// The seconds of a kernel that does nothing but move `bytes`, with a share of a copy's rate.
double StreamSeconds(const Machine& machine, double bytes, double share);

// A group that memory limits takes as long with each of its configurations, though those that leave
// the multiprocessors most to spare are fastest. Their models were fitted on an H200, whose memory
// keeps its chip busiest: configurations are compared as there, and slower memory adds the same to
// all of a group's. On an H100 the fastest of an H200 take 1.02 times as long as its own
// (docs/tuning.md).
//
// The rate at which they are compared: that of a copy of an H200 as a share of what the L2 cache
// gives all multiprocessors, or the board's own where that is faster.
double ComparedMemory(const Machine& machine);
// Seconds that a group with `bytes` through memory takes longer for the board's own rate, beside
// `busy` seconds of units that do all its work at their best.
double OwnMemorySeconds(const Machine& machine, double bytes, double busy);

// The bytes that a copy moves in a second; 0 where nothing is known of the device.
double BytesPerSecond(const Target& target);

// Ok where kernels of mma.sync, or of wgmma and tensor maps, run; else a sentence that says what
// the target lacks.
Status RunsOnMma(const Target& target);
Status RunsOnWgmma(const Target& target);

}  // namespace kiln::compiler
