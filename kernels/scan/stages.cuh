// How the stages of the scan's gradient overlap. Where a stage is launched with programmatic stream
// serialization (cuda/jit/launch.hpp), it may begin while the one before it still runs. Elsewhere both calls
// do nothing.
#pragma once

#include "kernels/common/device_math.cuh"

namespace exphil {
namespace scan {

// Until then a stage reads only what no earlier stage writes, and writes nothing but shared memory.
EXPHIL_DEVICE void wait_for_stage_before() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
// The next stage may begin as soon as every block of this one has called this or has ended.
EXPHIL_DEVICE void let_next_stage_begin() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

}  // namespace scan
}  // namespace exphil
