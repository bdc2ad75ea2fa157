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
  long long columns;    // outer * inner
  long long tiles;      // stretches of `tile` elements in time
  long long tile;       // what a block holds at a time
  int warps;            // of a block that hold data
  int first_direction;  // 0 forward, 1 reverse; blockIdx.y counts on from it

  // How the blocks of one chain (a direction and a column) hand on what they found: associative/handover.cuh.
  // 0 at the start. Null where one block takes whole sequences.
  unsigned* exchange;
};

// Every tile of a window reads all the summaries before it in that window at once, and the state that the
// window before it left.
constexpr int kWindow = 256;
constexpr int kMaxWarps = 8;       // of a block of the rows
constexpr int kMaxStretches = 32;  // pieces of time in a block of the columns
constexpr int kSummaryWords = 6;   // no summary takes more words of the exchange,
constexpr int kStateWords = 4;     // nor any state

}  // namespace associative
}  // namespace exphil
