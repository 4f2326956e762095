// Drawn digits in place of MNIST: each is a few strokes, moved, turned, scaled and slanted at
// random, with a pen of random width and with noise on top.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "example.h"

namespace example {

constexpr int kDigits = 10, kSide = 28;

struct Point {
  float x, y;
};

// The strokes of a digit, each a line through points of a box from (-1, -1.5) above left to
// (1, 1.5).
inline std::vector<std::vector<Point>> Strokes(int digit) {
  const std::vector<Point> ring = {{0, -1.5f}, {0.8f, -1}, {1, 0},      {0.8f, 1}, {0, 1.5f},
                                   {-0.8f, 1}, {-1, 0},    {-0.8f, -1}, {0, -1.5f}};
  const std::vector<Point> upper = {{0, -1.5f},     {0.8f, -1.2f},  {0.8f, -0.4f}, {0, 0},
                                    {-0.8f, -0.4f}, {-0.8f, -1.2f}, {0, -1.5f}};
  const std::vector<Point> lower = {{0, 0},        {0.9f, 0.4f},  {0.9f, 1.1f}, {0, 1.5f},
                                    {-0.9f, 1.1f}, {-0.9f, 0.4f}, {0, 0}};
  switch (digit) {
    case 0:
      return {ring};
    case 1:
      return {{{-0.5f, -1}, {0.2f, -1.5f}, {0.2f, 1.5f}}};
    case 2:
      return {{{-0.9f, -1}, {0, -1.5f}, {0.9f, -0.9f}, {-0.9f, 1.5f}, {1, 1.5f}}};
    case 3:
      return {{{-0.9f, -1.3f},
               {0.3f, -1.5f},
               {0.9f, -0.8f},
               {0, 0},
               {1, 0.8f},
               {0.2f, 1.5f},
               {-0.9f, 1.2f}}};
    case 4:
      return {{{0.6f, 1.5f}, {0.6f, -1.5f}, {-1, 0.6f}, {1, 0.6f}}};
    case 5:
      return {{{0.9f, -1.5f},
               {-0.8f, -1.5f},
               {-0.8f, -0.2f},
               {0.4f, -0.3f},
               {1, 0.6f},
               {0.3f, 1.5f},
               {-0.9f, 1.3f}}};
    case 6:
      return {{{0.7f, -1.5f}, {-0.5f, -0.8f}, {-0.9f, 0.6f}}, lower};
    case 7:
      return {{{-0.9f, -1.5f}, {0.9f, -1.5f}, {-0.2f, 1.5f}}};
    case 8:
      return {upper, lower};
    default:
      return {upper, {{0.8f, -0.6f}, {0.6f, 0.8f}, {-0.3f, 1.5f}}};
  }
}

inline float Distance(Point p, Point a, Point b) {
  const float dx = b.x - a.x, dy = b.y - a.y;
  const float along = ((p.x - a.x) * dx + (p.y - a.y) * dy) / (dx * dx + dy * dy);
  const float t = std::clamp(along, 0.f, 1.f);
  return std::hypot(p.x - a.x - t * dx, p.y - a.y - t * dy);
}

// Writes kSide x kSide values with a mean near 0.
inline void DrawDigit(int digit, Random& random, float* image) {
  const float turn = random.Uniform(-0.25f, 0.25f), slant = random.Uniform(-0.2f, 0.2f);
  const float scale = random.Uniform(5, 7), pen = random.Uniform(0.8f, 1.6f);
  const Point centre = {kSide / 2 + random.Uniform(-3, 3), kSide / 2 + random.Uniform(-2, 2)};
  std::vector<std::vector<Point>> strokes = Strokes(digit);
  for (std::vector<Point>& stroke : strokes) {
    for (Point& p : stroke) {
      const float x = scale * (p.x + slant * p.y), y = scale * p.y;
      p = {centre.x + std::cos(turn) * x - std::sin(turn) * y,
           centre.y + std::sin(turn) * x + std::cos(turn) * y};
    }
  }
  for (int y = 0; y < kSide; ++y) {
    for (int x = 0; x < kSide; ++x) {
      float distance = kSide;
      for (const std::vector<Point>& stroke : strokes)
        for (size_t i = 1; i < stroke.size(); ++i)
          distance = std::min(distance, Distance({float(x), float(y)}, stroke[i - 1], stroke[i]));
      const float ink = std::clamp(pen + 0.5f - distance, 0.f, 1.f);
      image[y * kSide + x] = 2 * ink - 0.4f + 0.3f * random.Normal();
    }
  }
}

struct Digits {
  std::vector<float> images;  // NCHW
  std::vector<int> labels;
};

inline Digits DrawDigits(int count, Random& random) {
  Digits digits{std::vector<float>(size_t(count) * kSide * kSide), std::vector<int>(count)};
  for (int i = 0; i < count; ++i) {
    digits.labels[i] = random.Below(kDigits);
    DrawDigit(digits.labels[i], random, &digits.images[size_t(i) * kSide * kSide]);
  }
  return digits;
}

}  // namespace example
