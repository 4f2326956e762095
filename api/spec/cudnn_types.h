// The enumerations of cuDNN 9.19 as the core uses them. The core is compiled once and serves both
// generations: every value that a client of 8.9 can pass means the same in 9.19, except statuses,
// which the core never handles (it has kiln::Code) and api/entry maps.
#pragma once

#include "include/v9/cudnn_graph.h"
