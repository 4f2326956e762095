// The layout of the buffers through which GPUs of a group, its ranks, add up small numbers. The
// tensor graph sizes buffers by it (ir/graph/peers.h), device code reads and writes them
// (codegen/cuda/device/peers/peer_words.cuh).
//
// Each rank has a buffer in its own memory that all others read. It has two words of 8 bytes for
// each number: an f32 in the low half, and the number of the call that wrote it in the high one. A
// rank's call n for a word writes copy n % 2 of its own buffer and waits until the same copy of
// each other buffer carries n. The last n follows from the two copies that are there, so that
// nothing is reset between calls and a CUDA graph may replay them. A rank overwrites call n's copy
// in call n + 2, which it begins when all others have published n + 1 and so have read n.
//
//   buffer  [ word 0: copy 0, copy 1 ][ word 1: copy 0, copy 1 ] …      zero before the first call
#pragma once

#include <cstdint>

namespace kiln {

// The most ranks of a group. A kernel has a pointer parameter for each.
inline constexpr int kMostPeers = 16;

// Bytes of a buffer for each f32 that is added up: a word for even calls and one for odd ones.
inline constexpr int64_t kPeerBytesPerNumber = 16;

// Values that a kernel leaves in the fault word of its device when a wait times out: the first one
// and the rank that published nothing, or that a flag did not get its value.
inline constexpr int32_t kFirstRankFault = 1, kSignalFault = 256;

// Alignment of a buffer, so that a word is one access.
inline constexpr int64_t kPeerAlignment = 8;

}  // namespace kiln
