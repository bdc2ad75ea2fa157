// What an associative-scan kernel is called with. Shared, bit for bit, by the kernels and by the launcher in
// c_src/cuda, so it holds plain types only.
#pragma once

namespace exphil {
namespace associative {

// The tensor as {outer, length, inner}, row-major. A column is one sequence: element t of column c lies at
// (c / inner) length inner + t inner + c % inner. Rows are columns with inner = 1.
struct Arguments {
  const void* a;  // decays of the linear recurrence, else null
  const void* x;
  void* y;          // first to last
  void* y_reverse;  // last to first
  long long length;
  long long inner;
  long long columns;  // outer * inner
  long long tiles;    // stretches of `tile` elements in time, one block each
  long long tile;
  int warps;            // that hold data; one more hands over, unless one warp holds the whole sequence
  int first_direction;  // 0 forward, 1 reverse; blockIdx.y counts on from it

  // How the blocks of one chain (a direction and a group of columns) hand on what they found. All may be null
  // where tiles is 1. `flags` must be 0 at the start: first {chains, tiles}, then {chains, windows}.
  unsigned* flags;
  void* summaries;  // {chains, tiles, lanes} Summary
  void* carries;    // {chains, windows, lanes} State: after the last tile of each window
};

// Lanes of a chain, and tiles in a window: every tile of a window reads all the summaries before it in that
// window at once, and the state that the window before it left.
constexpr int kColumnLanes = 32;
constexpr int kColumnWindow = 32;
constexpr int kRowLanes = 1;
constexpr int kRowWindow = 256;
constexpr int kMaxWarps = 8;

}  // namespace associative
}  // namespace exphil
