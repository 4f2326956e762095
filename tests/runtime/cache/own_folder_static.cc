// Prints where it is, as code that is linked into a static program finds out.
#include <cstdio>

#include "runtime/cache/own_folder.h"

int main() { return std::puts(kiln::runtime::OwnFolder().c_str()) < 0 ? 1 : 0; }
