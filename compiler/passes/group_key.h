// GroupKey: a group as engines see it, as bytes. Networks repeat their layers, so most groups of a
// large graph are equal to one before but for the tensors of the module that they read and write;
// passes that ask engines about each group ask once a key.
#pragma once

#include <string>

#include "compiler/module.h"

namespace kiln::compiler {

// The key is equal for groups that rank, lower and print alike: kind, graph and what partition and
// materialise noted, with uids numbered in order of use, without the graph's name, the outer
// tensors and sentences. It has engine and knobs, once they are picked.
std::string GroupKey(const Group& group);

}  // namespace kiln::compiler
