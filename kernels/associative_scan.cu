// One variant of the associative scan: OPERATION, ELEMENT (numbers of Op and Element), COMPENSATED (0, 1),
// ITEMS (elements of a sequence that one thread holds) and ROWS (1: sequences are contiguous) come as -D
// defines from c_src/cuda/associative_plan.cpp.
#if ROWS
#include "associative_rows.cuh"
#else
#include "associative_columns.cuh"
#endif

using namespace exphil::associative;

// Three blocks an SM hide one's hand-over behind the others' loads; they cap a thread at 72 registers.
extern "C" __global__ void __launch_bounds__(32 * (kMaxWarps + 1), 3) associative_scan(Arguments arguments) {
#if ROWS
  Rows<static_cast<Op>(OPERATION), static_cast<Element>(ELEMENT), COMPENSATED != 0, ITEMS>::run_block(
      arguments);
#else
  Columns<static_cast<Op>(OPERATION), static_cast<Element>(ELEMENT), COMPENSATED != 0, ITEMS>::run_block(
      arguments);
#endif
}
