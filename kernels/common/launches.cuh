// How launches of a stream overlap. Where one is launched with programmatic stream serialization
// (launch_overlapped() of cuda/jit/launch.hpp), it may begin while the one before it still runs, as soon as
// that one lets it. Elsewhere, and before compute capability 9.0, these calls do nothing.
//
// What the launch before wrote is read by plain loads, not by __ldg(): those may find what a multiprocessor
// had read of the place before.
#pragma once

#include "kernels/common/device_math.cuh"

namespace exphil {
namespace device {

// Waits for the end of the launch before, and its writes. Until then a launch reads only what that one does
// not write, and writes nothing but shared memory.
EXPHIL_DEVICE void await_launch_before() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
// The next launch may begin as soon as every block of this one has called this or has ended.
EXPHIL_DEVICE void begin_launch_after() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
// Both, for a launch that has nothing to do before. What the next one reads while it waits for this one is
// there, if launches before this one have written it.
EXPHIL_DEVICE void take_turn() {
  await_launch_before();
  begin_launch_after();
}

}  // namespace device
}  // namespace exphil
