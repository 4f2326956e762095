// Weights that learn by Adam, for examples whose weights are few: the optimiser is on the host.
#pragma once

#include <cmath>
#include <random>
#include <vector>

#include "example.h"

namespace example {

class Weights {
 public:
  Weights(const Device& device, size_t count, std::mt19937& random)
      : values(device, count),
        gradients(device, count),
        host_(count),
        mean_(count),
        square_(count) {
    std::normal_distribution<float> of(0, 0.3f);
    for (float& w : host_) w = of(random);
    values.Set(host_);
  }
  // `number` counts from 1.
  void Step(int number) {
    constexpr float kRate = 0.02f, kMean = 0.9f, kSquare = 0.99f;
    const std::vector<float> by = gradients.Get();
    for (size_t i = 0; i < host_.size(); ++i) {
      mean_[i] = kMean * mean_[i] + (1 - kMean) * by[i];
      square_[i] = kSquare * square_[i] + (1 - kSquare) * by[i] * by[i];
      const float mean = mean_[i] / (1 - std::pow(kMean, number)),
                  square = square_[i] / (1 - std::pow(kSquare, number));
      host_[i] -= kRate * mean / (std::sqrt(square) + 1e-6f);
    }
    values.Set(host_);
  }
  size_t bytes() const { return host_.size() * sizeof(float); }
  const std::vector<float>& host() const { return host_; }

  Array<float> values, gradients;

 private:
  std::vector<float> host_, mean_, square_;
};

}  // namespace example
