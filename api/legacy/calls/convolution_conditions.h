// The problems that each named algorithm of a convolution takes: one table for the three
// directions.
//
// An algorithm is a name for a result, and a program that names one wants the result. Two names of
// each direction are plans of Kiln's (DirectionRow): one with the least workspace, one with any.
// They take whatever Kiln computes, layouts included that NVIDIA's refuse. The names of methods
// (an explicit GEMM, FFT, Winograd's products) are taken where NVIDIA's 9.19 takes them, and
// nowhere else: programs probe them and go by NOT_SUPPORTED. They share the plans with any
// workspace, but for Winograd's products where an engine has them.
//
// Conditions are those of the reference (cudnnConvolutionForward, …BackwardData, …BackwardFilter,
// "supported algorithms"), corrected by what 9.19 answered on an H100 for the geometries of
// tests/data/convolution_algorithms.tsv. DIRECT, the fused WINOGRAD and the filter gradient's
// WINOGRAD have no row: 9.19 refuses them for all of these.
#pragma once

#include "api/legacy/calls/convolution.h"

namespace kiln::api::legacy {

// NOT_SUPPORTED with the condition that does not hold, or of a number that is no algorithm's. The
// problem is consistent.
Status CheckConditions(const ConvProblem& problem, int algorithm);

}  // namespace kiln::api::legacy
