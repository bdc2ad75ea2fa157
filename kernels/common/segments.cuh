// The length of the segments in which a dot product is summed up: kernels/common/dot.cuh. Compiled by the
// host compiler and by NVRTC.
#pragma once

namespace exphil {

constexpr int kSegment = 32;

}  // namespace exphil
