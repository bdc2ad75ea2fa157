#include "cuda/recurrent/scan.hpp"

#include "cuda/device/named_call.hpp"
#include "cuda/recurrent/dense.hpp"
#include "cuda/recurrent/linear.hpp"

namespace exphil::cuda {

std::size_t recurrent_scratch(const core::RecurrentShape& shape) {
  return shape.dense() ? dense_scratch(shape) : linear_scratch(shape);
}

void prepare_recurrent(Context& context, const core::RecurrentShape& shape) {
  shape.dense() ? prepare_dense(context, shape) : prepare_linear(context, shape);
}

void enqueue_recurrent(Context& context, CUstream stream, const core::RecurrentShape& shape,
                       const core::RecurrentOperands<CUdeviceptr>& operands, CUdeviceptr scratch) {
  (shape.dense() ? enqueue_dense : enqueue_linear)(context, stream, shape, operands, scratch);
}

void run_recurrent(Context& context, const core::RecurrentCall& call) {
  run_on_host_tensors<core::RecurrentOperand>(
      context, call, recurrent_scratch(call.shape),
      [&](CUstream stream, const core::RecurrentOperands<CUdeviceptr>& operands, CUdeviceptr scratch) {
        enqueue_recurrent(context, stream, call.shape, operands, scratch);
      });
}

}  // namespace exphil::cuda
