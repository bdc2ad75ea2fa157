// One variant of the associative scan: OPERATION, ELEMENT (numbers of Op and Element), COMPENSATED (0, 1) and
// ITEMS (elements of a sequence that one thread holds) come as -D defines from
// c_src/cuda/associative_scan.cpp.
#include "associative_columns.cuh"
#include "associative_rows.cuh"

using namespace exphil::associative;

// Three blocks an SM hide one's hand-over behind the others' loads; they cap a thread at 72 registers.
extern "C" __global__ void __launch_bounds__(32 * (kMaxWarps + 1), 3)
    associative_columns(Arguments arguments) {
  Columns<static_cast<Op>(OPERATION), static_cast<Element>(ELEMENT), COMPENSATED != 0, ITEMS>::run_block(
      arguments);
}

extern "C" __global__ void __launch_bounds__(32 * (kMaxWarps + 1), 3) associative_rows(Arguments arguments) {
  Rows<static_cast<Op>(OPERATION), static_cast<Element>(ELEMENT), COMPENSATED != 0, ITEMS>::run_block(
      arguments);
}
