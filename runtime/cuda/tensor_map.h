// From TensorMapSpec to the driver's bytes. Used by the CUDA device when a plan is made.
#pragma once

#include "runtime/cuda/driver.h"
#include "runtime/device.h"

namespace kiln::runtime {

Status EncodeMap(const Driver& driver, const TensorMapSpec& spec, void* address,
                 TensorMapBytes& map);

}  // namespace kiln::runtime
