// The statements of tile.h: their copies, moves and ends.
#include "ir/tile/tile.h"

#include "ir/base/any_of_inl.h"

template class kiln::AnyOf<kiln::tile::AllStmts>;
