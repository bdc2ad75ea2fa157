// One variant of the associative scan. -D defines from c_src/cuda/associative/plan.cpp: OPERATION, ELEMENT
// (numbers of Op and Element), COMPENSATED (0, 1), ITEMS (elements of a sequence per thread), LANES (columns
// of a block; 0: sequences are contiguous), WALK (1: a block scans its columns from end to end) and INITIAL
// (1: the recurrence has an initial state).
#if LANES == 0
#include "kernels/associative/rows.cuh"
#else
#include "kernels/associative/columns.cuh"
#endif

using namespace exphil::associative;

#if LANES == 0
// Three blocks per SM hide one block's hand-over behind the others' loads; they limit a thread to 72
// registers.
#define BOUNDS __launch_bounds__(32 * (kMaxWarps + 1), 3)
using Kernel =
    Rows<static_cast<Op>(OPERATION), static_cast<Element>(ELEMENT), COMPENSATED != 0, ITEMS, INITIAL != 0>;
#else
// With WALK a block holds two tiles; otherwise two blocks share an SM.
#define BOUNDS __launch_bounds__(LANES* kMaxStretches, (WALK ? 1 : 2) * 16 / LANES)
using Kernel = Columns<static_cast<Op>(OPERATION), static_cast<Element>(ELEMENT), COMPENSATED != 0, ITEMS,
                       LANES, WALK != 0, INITIAL != 0>;
#endif

extern "C" __global__ void BOUNDS associative_scan(Arguments arguments) {
  Kernel::run_block(arguments);
}
