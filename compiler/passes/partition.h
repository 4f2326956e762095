// partition: the graph becomes groups, one kernel's work each, in launch order. Any legal graph
// splits.
//
//   before  %c = conv_fprop(%x, %w)   %s = map mul(%c, %scale)   %y = map max(%s, 0)
//           %m = reduce max(%y)       %z = map sub(%y, %m)
//   after   group 0 contract: conv, mul, max        writes %y (kept: two readers)
//           group 1 reduce:   max                   reads %y
//           group 2 pointwise: sub                  reads %y, %m
//   or      group 0 contract: conv, mul, max, max   where %m keeps the channels alone
//           group 1 pointwise: sub                  reads %y, %m
//
//   or      group 0 attention: both products of softmax(q k) v and all between them, where an
//           engine takes that (compiler/patterns/attention.h)
//
// Contractions, reductions and windows anchor groups; reductions of one shape share one. A
// reduction of a contraction's result joins its group where that is cheap (JoinsContraction in
// engines/contraction/epilogue_reductions.h), and so do maps of its result, place by place. A map
// joins the latest group that it depends on when it reads that group's values place by place;
// otherwise it floats, and is computed again wherever it is read, which costs arithmetic but no
// memory traffic. What a caller or another group needs is stored, in the caller's tensor or in the
// workspace. A floating map that reads the old version of an in-place tensor is stored, too, where
// it would be read only after the new version; and so is one that would take many nodes or tensors
// to compute again, since groups are bounded (group_limits.h). The pass stands after simplify:
// nothing is left to remove.
//
// Patterns are found first (fused_patterns.h). Then each round places nodes (place_nodes.h), makes
// graphs of the groups (extract_groups.h), and asks engines about patterns; what was refused is
// placed again, node by node.
#pragma once

#include "compiler/pass.h"

namespace kiln::compiler {

Result<bool> Partition(Module& module, const PassContext& context);

}  // namespace kiln::compiler
