#pragma once
// Rows that tensor maps read and write though no map has the tensor: one sequence behind another,
// from numbers in memory on, or in pages (attention_boxes, attention_to_runs).
//
// A map here is {depth, rows of a box, units}: its third dim begins a box at any multiple of a
// unit, what all strides are multiples of, since its places overlap. A box of which n rows count
// begins that many rows before the end of the second dim: the hardware ends it, with zeroes for
// what is loaded from behind and nothing stored there. The box's first unit then lies before the
// tensor where the tensor begins with fewer rows than a box has. A map that is written has its
// address a box before the tensor's; one that is loaded cannot, since the hardware touches the
// map's address for what lies outside, and such boxes are loaded piece by piece.
//
//   name_run(batch, row, end, result out)   for the box at `row`, of whose rows those before `end`
//       count: the number along the third dim, and what `row` has to be moved by along the second;
//       kPieceByPiece there for a box before the tensor, or of a run that does not begin at a
//       multiple of a unit or ends within a row: name(to, batch, row, column) moves 8 of its
//       elements, as in attention_loaded_sm90

#include "codegen/cuda/device/attention/panels.cuh"
#include "codegen/cuda/device/ptx/copy.cuh"
#include "codegen/cuda/device/ptx/copy_async.cuh"
#include "codegen/cuda/device/ptx/mbarrier.cuh"
#include "codegen/cuda/device/ptx/tma.cuh"

template <class Run, class Apart>
struct attention_run_moves {
  const tensor_map& map;
  const Run& run;
  const Apart& apart;
};

// `rows` rows of `panels` times 64 columns, in boxes of `box` rows.
template <int rows, int panels_of, int box, bool has_apart>
struct attention_boxes {
  static constexpr int kBoxes = rows / box, kPieceByPiece = -(1 << 30);
  static_assert(rows % box == 0 && kBoxes <= 32);
  using shape = panels<rows, panels_of * 64>;
  int at = 0, move_by = 0;  // of this lane's box

  static __device__ inline int lane() { return threadIdx.x % 32; }
  template <class Moves>
  __device__ inline void find(const Moves& moves, int batch, int row, int end) {
    int result[2] = {0, 0};
    if (lane() < kBoxes) moves.run(batch, row + lane() * box, end, result);
    at = result[0];
    move_by = result[1];
  }
  // `to` is an address, `element` its element of the memory that functions know; `more` are bytes
  // that are to come beside the block.
  template <class Moves>
  __device__ inline void load(const Moves& moves, unsigned to, int element, unsigned full,
                              int batch, int row, int end, int none, int more = 0) const {
    if constexpr (has_apart) {
      if (__any_sync(~0u, move_by == kPieceByPiece)) {
#pragma unroll 1
        for (int n = lane(); n < rows * shape::kOfRow; n += 32) {
          const int i = n / shape::kOfRow, chunk = n % shape::kOfRow;
          moves.apart(element + shape::at(i, chunk), batch, row + i < end ? row + i : none,
                      chunk * 8);
        }
        commit_async();
        wait_async<0>();
        fence_for_copies();
        __syncwarp();
        if (lane() == 0) mbarrier_expect(full, more);
        return;
      }
    }
    if (lane() == 0) mbarrier_expect(full, panels_of * rows * 128 + more);
    __syncwarp();
    if (lane() < kBoxes)
#pragma unroll
      for (int c = 0; c < panels_of; ++c)
        tma_load(to + (c * rows + lane() * box) * 128, moves.map, full, c * 64,
                 move_by + row + lane() * box, at, 0);
  }
};

// 64 by 64 results from the staging: by the map, or a piece of 8 at a time.
template <bool has_apart, class T, class Store>
struct attention_to_runs {
  T* memory;
  const Store& put;
  unsigned start;  // address of the shared memory
  int from;        // and its element of `memory`
  int rows, columns;

  struct places {
    int at, move_by;
  };
  __device__ inline places find(int batch, int first_row) const {
    int result[2];
    put.run(batch, first_row, rows, result);
    return {result[0], result[1]};
  }
  __device__ inline void wait(bool leads) const {
    if (leads) tma_store_wait_read<0>();
  }
  __device__ inline void store(bool leads, unsigned staging, int column, int first_row, int batch,
                               int, int, const places& p) const {
    if constexpr (has_apart) {
      if (p.move_by == attention_boxes<64, 1, 64, true>::kPieceByPiece) {
        const T* at = memory + from + int(staging - start) / 2;
        const int chunk = threadIdx.x % 8;
        if (column + chunk * 8 >= columns) return;
#pragma unroll 1
        for (int row = threadIdx.x % 128 / 8; row < min(64, rows - first_row); row += 16) {
          __align__(16) T values[8];
          copy<16>(values, at + row * 64 + (chunk ^ row % 8) * 8);
          put.apart(values, batch, first_row + row, column + chunk * 8);
        }
        return;
      }
    }
    if (!leads) return;
    tma_store(put.map, staging, column, p.move_by + first_row, p.at, 0);
    tma_store_commit();
  }
  __device__ inline void end(bool leads) const {
    if (leads) tma_store_wait();
  }
};
