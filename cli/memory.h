// The memory that a command may take, and that a check takes: a graph that is too large is refused
// with both numbers before the system ends the process.
#pragma once

#include <cstdint>
#include <string>

#include "ir/graph/graph.h"

namespace kiln::cli {

// Bytes that this process may still take: the least of what the machine has to give, the limits of
// the control groups above it, and its own limit of address space. `root` is a folder that stands
// for "/" in tests.
int64_t AvailableBytes(const std::string& root = "");

// Bytes of the host that a run needs for inputs, for memory images of inputs and outputs, and on
// the CPU device for what stands for the device's memory.
int64_t RunBytes(const graph::Graph& graph, int64_t workspace_bytes, bool host_is_device);

// Bytes that Interpret and Compare need beside them: f64 values of all tensors, of a disturbed run,
// and of the largest node's temporaries.
int64_t CheckBytes(const graph::Graph& graph);

}  // namespace kiln::cli
