#include "compiler/engines/window/tile_frame.h"

namespace kiln::compiler {
namespace {

// All of a product of ranges.
std::vector<Places> Product(const std::vector<std::pair<int, int>>& ranges) {
  std::vector<Places> all = {{}};
  for (const auto& [low, high] : ranges) {
    std::vector<Places> longer;
    for (const Places& at : all) {
      for (int place = low; place <= high; ++place) {
        longer.push_back(at);
        longer.back().push_back(place);
      }
    }
    all = std::move(longer);
  }
  return all;
}

}  // namespace

std::vector<Places> SourcesOfTile(const WindowTiles& tiles) {
  std::vector<std::pair<int, int>> ranges;
  for (const WindowTiles::Axis& axis : tiles.axes) ranges.emplace_back(axis.low, axis.high);
  return Product(ranges);
}

std::vector<Places> ResultsOfTile(const WindowTiles& tiles) {
  std::vector<std::pair<int, int>> ranges;
  for (const WindowTiles::Axis& axis : tiles.axes) ranges.emplace_back(0, axis.tile - 1);
  return Product(ranges);
}

Places RowOf(const TileFrame& f, Places result) {
  if (f.tiles.along) result.back() = 0;
  return result;
}

std::vector<TapOfResult> TapsOf(const TileFrame& f, const Places& result) {
  std::vector<TapOfResult> taps = {{{}, 0}};
  for (size_t s = 0; s < f.tiles.axes.size(); ++s) {
    std::vector<TapOfResult> longer;
    for (const TapOfResult& tap : taps) {
      for (const WindowTiles::Link& link : f.tiles.axes[s].links) {
        if (link.result != result[s]) continue;
        const int number = tap.number * static_cast<int>(f.attrs.window[s]) + link.tap;
        longer.push_back({tap.source, number});
        longer.back().source.push_back(link.source);
      }
    }
    taps = std::move(longer);
  }
  return taps;
}

}  // namespace kiln::compiler
