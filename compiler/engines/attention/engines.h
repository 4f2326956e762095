// The engines of attention and of its gradients, each as one kernel with scores in registers:
//
//   attention_sm90, attention_sm80              softmax(q k) v: on Hopper; on mma.sync, for every
//                                               GPU and layout
//   attention_bytes_sm90                        the same on Hopper, of operands of 8 bits
//   attention_decode                            the same of few queries over many keys, which are
//                                               split; k and v may lie behind page tables
//   attention_grad_sm90, attention_grad_sm80    gradients, with zeroes before and dq behind; sums
//                                               of dq are added to in the order of keys
//   …_atomic                                    … in any order
//
// attention.h and attention_grad.h say what such groups are, codegen/cuda/device/<name>.cuh how
// they run.
#pragma once

#include "compiler/engines/engine.h"

namespace kiln::compiler {

extern const Engine kAttentionSm80Engine;
extern const Engine kAttentionSm80Tf32Engine;
extern const Engine kAttentionSm80F32Engine;
extern const Engine kAttentionSm90Engine;
extern const Engine kAttentionBytesSm90Engine;
extern const Engine kAttentionDecodeEngine;
extern const Engine kAttentionGradSm80Engine;
extern const Engine kAttentionGradSm80AtomicEngine;
extern const Engine kAttentionGradSm80Tf32Engine;
extern const Engine kAttentionGradSm80F32Engine;
extern const Engine kAttentionGradSm90Engine;
extern const Engine kAttentionGradSm90AtomicEngine;

}  // namespace kiln::compiler
