// Hand-written graphs that reach every engine, schedule and view, in small extents. Used wherever
// the compiler as a whole is tested: interpretation of the plans, NVRTC, structure.
#pragma once

#include <string>
#include <vector>

#include "ir/graph/graph.h"

namespace kiln::compiler {

struct SampleGraph {
  std::string name;
  graph::Graph graph;
  bool positive = false;  // inputs must be above 0 (logarithms, roots)
};

std::vector<SampleGraph> PointwiseSamples();
std::vector<SampleGraph> PointwiseModeSamples();  // every mode × f32, f64 and i32 where legal
std::vector<SampleGraph> ReduceSamples();
std::vector<SampleGraph> MatmulSamples();
std::vector<SampleGraph> ConvSamples();
std::vector<SampleGraph> ViewSamples();
std::vector<SampleGraph> BlockScaleSamples();
std::vector<SampleGraph> WindowSamples();  // pooling and interpolation
std::vector<SampleGraph> EmptySamples();   // zero extents
std::vector<SampleGraph> FusedSamples();   // several ops, several groups
std::vector<SampleGraph> RnnSamples();     // recurrent networks and their gradients
std::vector<SampleGraph> CtcSamples();
std::vector<SampleGraph> SegmentSamples();
std::vector<SampleGraph> AllSamples();

}  // namespace kiln::compiler
