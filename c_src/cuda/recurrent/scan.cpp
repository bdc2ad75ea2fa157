#include "cuda/recurrent/scan.hpp"

#include "cuda/recurrent/dense.hpp"
#include "cuda/recurrent/linear.hpp"

namespace exphil::cuda {

template <>
std::size_t RecurrentOperator::scratch(const core::RecurrentShape& shape) {
  return shape.dense() ? dense_scratch(shape) : linear_scratch(shape);
}

template <>
void RecurrentOperator::prepare(Context& context, const core::RecurrentShape& shape) {
  shape.dense() ? prepare_dense(context, shape) : prepare_linear(context, shape);
}

template <>
void RecurrentOperator::enqueue(Context& context, CUstream stream, const core::RecurrentShape& shape,
                                const core::RecurrentOperands<CUdeviceptr>& operands, CUdeviceptr scratch) {
  (shape.dense() ? enqueue_dense : enqueue_linear)(context, stream, shape, operands, scratch);
}

}  // namespace exphil::cuda
