// The operations of a case as finalised backend descriptors.
#pragma once

#include <vector>

#include "tests/support/client.h"

namespace kiln::testing {

// Descriptors of tensors and of pointwise, convolution … settings are destroyed before this
// returns.
std::vector<Descriptor> MakeOperations(const Cudnn& cudnn, const Case& c, ClientError* error);

}  // namespace kiln::testing
