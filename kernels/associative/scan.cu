// One variant of the associative scan. -D defines from c_src/cuda/associative/plan.cpp: OPERATION, ELEMENT
// (numbers of Op and Element), COMPENSATED (0, 1), ITEMS (elements of a sequence per thread), LANES (columns
// of a block; 0: sequences are contiguous), WALK (1: a block scans its columns from end to end), INITIAL (1:
// the recurrence has an initial state) and GRADIENT (1: the scan of a recurrence's gradient, which also
// computes the gradient of the decays).
#if LANES == 0
#include "kernels/associative/rows.cuh"
#else
#include "kernels/associative/columns.cuh"
#endif

using namespace exphil::associative;

#if LANES == 0
// Three blocks per SM hide one block's hand-over behind the others' loads; they limit a thread to 72
// registers. A gradient needs more.
#define BOUNDS __launch_bounds__(32 * (kMaxWarps + 1), GRADIENT ? 2 : 3)
using Kernel = Rows<static_cast<Op>(OPERATION), static_cast<Element>(ELEMENT), COMPENSATED != 0, ITEMS,
                    INITIAL != 0, GRADIENT != 0>;
#else
// With WALK a block holds two tiles, and a gradient's three tensors; otherwise two blocks share an SM.
#define BOUNDS __launch_bounds__(LANES* kMaxStretches, (WALK || GRADIENT ? 1 : 2) * 16 / LANES)
using Kernel = Columns<static_cast<Op>(OPERATION), static_cast<Element>(ELEMENT), COMPENSATED != 0, ITEMS,
                       LANES, WALK != 0, INITIAL != 0, GRADIENT != 0>;
#endif

extern "C" __global__ void BOUNDS associative_scan(Arguments arguments) {
  Kernel::run_block(arguments);
}
