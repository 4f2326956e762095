// Batch norm over the parts of a batch that ranks have, forward and backward, by plain loops in
// f64: what each rank's GPU must have, and what it publishes on the way. Shares nothing with the
// compiler or the interpreter. Used by the tests of peers.
#pragma once

#include <cstddef>
#include <vector>

namespace kiln::oracle {

// Extents of each rank's part; x is [batch, channels, places] in row-major order.
struct NormExtents {
  size_t batch, channels, places;
  size_t size() const { return batch * channels * places; }
  size_t ChannelOf(size_t i) const { return i / places % channels; }
};

struct RunningStatistics {
  double epsilon = 0, factor = 0;
  std::vector<double> mean = {}, variance = {};  // before; none where nobody asks
};

struct WholeNorm {
  struct OfRank {
    std::vector<double> mean;      // of its own part
    std::vector<double> from_all;  // mean squared distance of its part from the mean of all
  };
  std::vector<OfRank> of_rank;
  std::vector<double> mean, variance, inv, next_mean, next_variance;
  std::vector<std::vector<double>> y;  // of each rank
};
WholeNorm ForwardOf(const NormExtents& extents, const std::vector<std::vector<double>>& x,
                    const std::vector<double>& scale, const std::vector<double>& bias,
                    const RunningStatistics& running);

struct WholeGradient {
  std::vector<std::vector<double>> dbias_of_rank, dscale_of_rank, dx;
  std::vector<double> dbias, dscale;
};
WholeGradient BackwardOf(const NormExtents& extents, const std::vector<std::vector<double>>& x,
                         const std::vector<std::vector<double>>& dy,
                         const std::vector<double>& scale, const WholeNorm& norm);

}  // namespace kiln::oracle
