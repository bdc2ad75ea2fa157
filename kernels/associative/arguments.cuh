// The arguments of an associative-scan kernel. The kernels and the launcher in c_src/cuda share this struct,
// so it holds plain types only.
#pragma once

namespace exphil {
namespace associative {

// The tensor as {outer, length, inner}, row-major. A column is one sequence: element t of column c is at (c /
// inner) length inner + t inner + c % inner. Rows are columns with inner = 1.
struct Arguments {
  const void* a;  // decays of the linear recurrence, else null
  const void* x;
  void* y;          // first to last
  void* y_reverse;  // last to first
  long long length;
  long long inner;
  long long columns;    // outer * inner
  long long tiles;      // number of tiles in time
  long long tile;       // elements of a tile, which a block processes at a time
  int warps;            // warps of a block that hold data
  int first_direction;  // 0 forward, 1 reverse: the direction of blockIdx.y = 0

  // Memory through which the blocks of one chain (a direction and a column) pass on their results: see
  // associative/handover.cuh. 0 at the start. Null where one block scans entire sequences.
  unsigned* exchange;
  const void* initial;  // the state before the first step of each column; null: the operation's own

  // For the gradient of a linear recurrence alone (associative/recurrence_gradient.cuh), which scans in the
  // other direction. `a` and `initial` are the recurrence's, x is dh, and y is db.
  const void* h;  // the recurrence's results
  void* da;
  void* d_initial;  // an element for each column, or null
};

// A tile reads all earlier summaries of its window of
// tiles, and the state that the previous window left.
constexpr int kWindow = 256;
constexpr int kMaxWarps = 8;       // of a block of the rows
constexpr int kMaxStretches = 32;  // segments of time in a block of the columns
constexpr int kSummaryWords = 6;   // most words of a summary in the exchange
constexpr int kStateWords = 4;     // most words of a state

}  // namespace associative
}  // namespace exphil
