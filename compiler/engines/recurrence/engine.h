// recurrence: loops over time of recurrent layers and their gradients, of any cell, type and
// device. A launch is a layer: each block has a direction and a few sequences, of which it makes
// all units, and takes all steps by itself. So blocks never wait for one another, and sequences do
// not depend on what else is in the batch; the price is that each block reads all recurrent weights
// at every step.
#pragma once

#include "compiler/engines/engine.h"

namespace kiln::compiler {

extern const Engine kRecurrenceEngine;

}  // namespace kiln::compiler
