// Multi-head attention by plain loops in f64, from the formulas of the reference (7.2.35, 7.2.43)
// and the layout of weights that its functions tell. It knows nothing of the library.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <vector>

namespace kiln::testing {

using Vector = std::vector<double>;

struct MultiHead {
  int heads = 1, batch = 1, beam = 1, steps = 1, keys = 1;
  std::array<int, 3> size = {1, 1, 1};          // of q, k, v
  std::array<int, 4> projected = {0, 0, 0, 0};  // of q, k, v and the output; 0: not
  bool biases = false, residual = false;
  double scale = 1;
  std::vector<int> lo, hi;                      // of each step
  std::vector<int> query_lengths, key_lengths;  // [batch][beam], [batch]
  // A factor of each weight, of each element of the output before the residual: what dropout does.
  std::function<double(int batch, int head, int beam, int step, int key)> weight_factor;
  std::function<double(int batch, int beam, int step, int element)> output_factor;

  int Width(int what) const { return projected[what] > 0 ? projected[what] : size[what]; }
  int OutputSize() const { return projected[3] > 0 ? projected[3] : heads * Width(2); }
};

// Elements from the start of the buffer: matrix[what] or bias[what] of q, k, v and the output; -1
// where there is none.
struct WeightPlaces {
  std::array<int64_t, 4> matrix = {-1, -1, -1, -1}, bias = {-1, -1, -1, -1};
  int64_t end = 0;
  // Row `row` of a head's matrix, column `column`.
  static int64_t Of(const MultiHead& m, int what, int head, int row, int column);
};
WeightPlaces PlacesOf(const MultiHead& m);

// Sequences are [batch][beam][step][element], keys and values without beams.
struct MultiHeadData {
  Vector q, k, v, residual, weights;
};
Vector MultiHeadForward(const MultiHead& m, const MultiHeadData& data);

struct MultiHeadGradients {
  Vector q, k, v, weights;
};
MultiHeadGradients MultiHeadBackward(const MultiHead& m, const MultiHeadData& data,
                                     const Vector& dout);

}  // namespace kiln::testing
