#include "cuda/recurrent/linear.hpp"

#include "cuda/jit/elements.hpp"
#include "cuda/jit/launch.hpp"
#include "kernels/recurrent/linear_arguments.cuh"

namespace exphil::cuda {

namespace {

using core::Dtype;
using core::RecurrentShape;
using Id = core::RecurrentOperand;
using formulas::Cell;

KernelSpec spec_of(Cell cell, Dtype dtype, bool gradient) {
  return {"recurrent/linear.cu",
          gradient ? "recurrent_linear_back" : "recurrent_linear",
          {define("CELL", static_cast<int>(cell)), define("ELEMENT", element_of(dtype))}};
}

bool has_states(const RecurrentShape& s) {
  return s.has(Id::given_h) && s.dtype == Dtype::f32;
}

// The kernels of a call, in order.
std::vector<KernelSpec> specs_of(const RecurrentShape& s) {
  const bool gradient = s.has(Id::dh);
  std::vector<KernelSpec> specs;
  if (!gradient || !has_states(s)) specs.push_back(spec_of(s.cell, s.dtype, false));
  if (gradient) specs.push_back(spec_of(s.cell, s.dtype, true));
  return specs;
}

std::int64_t groups_of(const RecurrentShape& s) {
  return (s.hidden + recurrent::kChannels - 1) / recurrent::kChannels;
}

}  // namespace

std::size_t linear_scratch(const RecurrentShape& s) {
  if (!s.has(Id::dh) || has_states(s)) return 0;
  return static_cast<std::size_t>(s.batch * s.seq * s.hidden) * sizeof(float);
}

void prepare_linear(Context& context, const RecurrentShape& shape) {
  context.kernels().prepare(specs_of(shape));
}

void enqueue_linear(Context& context, CUstream stream, const RecurrentShape& s,
                    const core::RecurrentOperands<CUdeviceptr>& operands, CUdeviceptr scratch) {
  const unsigned blocks = grid_blocks(s.batch * groups_of(s), s.row().inputs[0]);
  const auto at = [&](Id id) { return s.has(id) ? reinterpret_cast<void*>(operands[id]) : nullptr; };
  recurrent::LinearArguments a{};
  for (int i = 0; i < s.row().count(); ++i) {
    a.x[i] = at(core::behind(Id::x0, i));
    a.d_x[i] = at(core::behind(Id::grad_x0, i));
  }
  a.h0 = at(Id::h0), a.batch = s.batch, a.seq = s.seq, a.hidden = s.hidden;
  a.groups = static_cast<int>(groups_of(s));
  a.h = at(Id::h), a.final_h = at(Id::final_h);
  a.dh = at(Id::dh), a.d_final = at(Id::d_final_h), a.d_h0 = at(Id::grad_h0);
  auto* const states = reinterpret_cast<float*>(scratch);
  a.given_states = has_states(s) ? static_cast<const float*>(at(Id::given_h)) : states;
  if (s.has(Id::dh) && !has_states(s)) a.states = states;
  for (const KernelSpec& spec : specs_of(s)) {
    launch(context, context.kernels().get(spec), {blocks, 1, 1}, {recurrent::kLinearThreads, 1, 1}, 0, stream,
           a);
  }
}

std::vector<KernelSpec> linear_kernel_variants() {
  std::vector<KernelSpec> specs;
  for (const Cell cell : {Cell::min_gru, Cell::min_lstm, Cell::elu_gru, Cell::diag_linear, Cell::liquid,
                          Cell::mix, Cell::share, Cell::linear}) {
    for (const bool gradient : {false, true}) specs.push_back(spec_of(cell, Dtype::f32, gradient));
  }
  for (const Dtype dtype : {Dtype::f16, Dtype::bf16}) {
    for (const bool gradient : {false, true}) specs.push_back(spec_of(Cell::min_lstm, dtype, gradient));
  }
  return specs;
}

}  // namespace exphil::cuda
