// As std.h, with GoogleTest, for the sources of tests.
#pragma once

#include <gtest/gtest.h>

#include "tools/bazel/precompiled/std.h"
