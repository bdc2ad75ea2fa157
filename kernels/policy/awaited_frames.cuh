// A launch that waits for frames which the host copies meanwhile (AwaitedFrames): policy/batch_frame.cu and
// scan_frame.cu.
#pragma once

#include "kernels/policy/arguments.cuh"
#include "kernels/policy/batch_frame_layout.cuh"
#include "kernels/policy/ptx.cuh"

namespace exphil {
namespace policy {

__device__ __forceinline__ long long first_of_tile(const AwaitedFrames& args, int tile) {
  return first_of_tile(args.rows, args.tiles, args.spread, tile);
}

// By one thread of a cluster: asks the host until the frames of a chunk are there, by its number among those
// of all tiles, or says that they did not come in time. What the host wrote before is visible to whom the
// thread tells so.
__device__ __forceinline__ void await_frames_of(const AwaitedFrames& args, int chunk) {
  const unsigned long long* const flag = args.arrived + chunk * kArrivedWords;
  const unsigned long long end = nanoseconds() + args.nanoseconds;
  bool come = false;
  do {
    come = load_system(flag) == args.number;
  } while (!come && nanoseconds() < end);
  if (!come) store_system(args.missed, args.number);
  fence_system();
}

// By one thread of a block, when all have written its answers and states.
__device__ __forceinline__ void tell_finished(const AwaitedFrames& args) {
  fence_system();
  store_system(args.finished + blockIdx.x, args.number);
}

}  // namespace policy
}  // namespace exphil
