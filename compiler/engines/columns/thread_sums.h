// ThreadSums: the sums of one thread over its columns in a pass of the columns engine, in
// registers. A sum with moments counts the places that the thread has added, and adds distances
// from the first element of its column where x has the bits for it (reduction/moments.h).
#pragma once

#include "compiler/engines/columns/pass_frame.h"

namespace kiln::compiler {

class ThreadSums {
 public:
  ThreadSums(const PassFrame& f, const ThreadColumns& columns) : f_(f), columns_(columns) {}

  // Declares the registers, set to the identities, and reads the first elements.
  void Declare(tile::Block& out);
  // Takes in what the stage's reductions have at these places.
  void Add(tile::Block& out, const Arrays& column_values, const std::vector<LoadedPlace>& places);

  const std::string& registers(size_t r) const { return sums_.at(r); }
  tile::Expr Sum(size_t r, const tile::Expr& lane) const {
    return tile::Load(sums_.at(r), f_.TypeOf(r), lane);
  }
  tile::Expr Count(size_t r) const { return tile::Load(counts_.at(r), f_.TypeOf(r), f_.b.Idx(0)); }

 private:
  // The numbers 1 / n and n * p / (n + p), where the thread has n places and p more come.
  struct Weights {
    tile::Expr reciprocal, weight;
  };
  // The sum of a few values, and what they add to a moment.
  struct Growth {
    tile::Expr sum, moment;
  };
  tile::Expr Shift(size_t r, const tile::Expr& lane) const {
    return tile::Load(shifts_.at(r), f_.TypeOf(r), f_.ColumnOfLane(lane));
  }
  void ReadShift(tile::Block& out, size_t r);
  void LeaveShift(tile::Block& out, size_t r) const;
  void AddAtLane(tile::Block& body, LaneOfPlaces& at,
                 const std::map<size_t, Weights>& weights) const;
  std::vector<tile::Expr> ValuesOf(tile::Block& body, size_t r, LaneOfPlaces& at) const;
  Growth GrowthBy(tile::Block& out, size_t r, const std::vector<tile::Expr>& values,
                  const tile::Expr& old, const Weights& weights) const;

  const PassFrame& f_;
  const ThreadColumns& columns_;
  std::map<size_t, std::string> sums_, counts_;  // registers
  std::map<size_t, std::string> shifts_;         // registers of sums that add distances from them
};

}  // namespace kiln::compiler
