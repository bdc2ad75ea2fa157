#include "cuda/jit/convert.hpp"

#include "cuda/jit/elements.hpp"
#include "cuda/jit/launch.hpp"
#include "kernels/common/convert_arguments.cuh"

namespace exphil::cuda {

KernelSpec convert_spec(core::Dtype dtype, core::Flow flow) {
  return {"common/convert.cu",
          flow == core::Flow::in ? "convert_widen" : "convert_narrow",
          {define("ELEMENT", element_of(dtype))}};
}

void enqueue_convert(Context& context, CUstream stream, core::Dtype dtype, core::Flow flow, const void* from,
                     void* to, std::int64_t count, const std::string& argument) {
  if (count == 0) return;
  const convert::Arguments a{from, to, count};
  constexpr std::int64_t kOfBlock = convert::kThreads * convert::kEach;
  launch(context, context.kernels().get(convert_spec(dtype, flow)),
         {grid_blocks((count + kOfBlock - 1) / kOfBlock, argument), 1, 1}, {convert::kThreads, 1, 1}, 0,
         stream, a);
}

}  // namespace exphil::cuda
