// Band matrices, one stored element after the other: element b of the band belongs to one element
// of the matrix, or to none.
#include "tests/support/oracle/oracle.h"

namespace kiln::oracle {
namespace {

// Calls visit(index in the band, index in the matrix) for each pair that belongs together.
template <class F>
void ForEachPair(const Band& band, const Dims& stored, const Dims& matrix, F&& visit) {
  if (Count(stored) == 0) return;
  const size_t rank = stored.size(), axis = static_cast<size_t>(band.axis);
  const bool along_rows = axis + 1 == rank;  // the band of a row, else of a column
  Dims index(rank, 0);
  do {
    Dims at = index;
    at[axis] = along_rows ? index[rank - 2] + index[axis] - band.lower
                          : index[rank - 1] + index[axis] - band.upper;
    if (at[axis] >= 0 && at[axis] < matrix[axis]) visit(index, at);
  } while (Next(stored, index));
}

Dense Padded(const Dims& dims, double pad) {
  return Dense::Of(dims, std::vector<double>(static_cast<size_t>(Count(dims)), pad));
}

}  // namespace

Dense ExpandBand(const Band& band, const Dense& x, const Dims& out) {
  Dense y = Padded(out, band.pad);
  ForEachPair(band, x.dims, out, [&](const Dims& stored, const Dims& at) {
    y.values[BroadcastIndex(out, at)] = x.values[BroadcastIndex(x.dims, stored)];
  });
  return y;
}

Dense ContractBand(const Band& band, const Dense& x, const Dims& out) {
  Dense y = Padded(out, band.pad);
  ForEachPair(band, out, x.dims, [&](const Dims& stored, const Dims& at) {
    y.values[BroadcastIndex(out, stored)] = x.values[BroadcastIndex(x.dims, at)];
  });
  return y;
}

}  // namespace kiln::oracle
