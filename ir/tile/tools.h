// Tools on a tile kernel besides emitting it: parse, verify, interpret.
#pragma once

#include <map>
#include <span>
#include <string_view>

#include "ir/base/result.h"
#include "ir/tile/tile.h"

namespace kiln::tile {

// Reads a kernel's text. Errors name line and column.
Result<Kernel> Parse(std::string_view text);

// Checks the rules of the IR: names unique and defined before use, types right for every op, block
// loops outermost, thread loops not nested, barriers under no divergent condition, vector widths
// legal. Sentences name the statement.
Status Verify(const Kernel& kernel);

// One value of the interpreter: integers are exact, floats are f64 rounded to the expression's
// type.
struct Value {
  double f = 0;
  int64_t i = 0;
};

// The argument of one parameter: the elements of a pointer's buffer (as values of its dtype), or a
// scalar.
struct Argument {
  std::vector<double>* buffer = nullptr;
  Value scalar = {};
};

// Runs the kernel, all threads of a block in lockstep (so barriers and shuffles mean what they say
// on a GPU), blocks one after another. Out-of-bounds access and reads of undefined registers or
// shared memory are errors that name the buffer, index and thread.
Status Interpret(const Kernel& kernel, std::span<const Argument> args);

}  // namespace kiln::tile
