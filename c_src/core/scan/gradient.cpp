#include "core/scan/gradient.hpp"

#include "core/checks.hpp"
#include "core/error.hpp"

namespace exphil::core {

ScanGradProblem validate_scan_grad(const ScanGradInputs& inputs, const ScanOptions& options) {
  if (options.direction == Direction::both) {
    fail(ErrorKind::unsupported, ":reverse", "the gradient is taken of one direction at a time");
  }
  ScanGradProblem problem;
  problem.scan = validate_scan(inputs.scan, options);
  const ScanShape& scan = problem.scan.shape;
  require_dtype(inputs.dy, "dy", scan.dtype, " like x");
  require_shape(inputs.dy, "dy", inputs.scan.x.shape, "{batch, seq, dim}");
  check_bytes(inputs.dy, "dy");
  problem.dy = inputs.dy.data;
  const auto take_states = [&](const TensorView& view, const char* name, const Shape& shape,
                               const char* axes) {
    require_dtype(view, name, scan.complex ? Dtype::c64 : Dtype::f32, scan.complex ? " like a" : "");
    require_shape(view, name, shape, axes);
    check_bytes(view, name);
    return static_cast<const float*>(view.data);
  };
  if (inputs.d_final_state) {
    problem.d_final_state = take_states(*inputs.d_final_state, ":d_final_state",
                                        Shape{scan.batch, scan.dim, scan.state}, "{batch, dim, state}");
  }
  if (inputs.states) {
    problem.states = take_states(*inputs.states, "states", Shape{scan.batch, scan.seq, scan.dim, scan.state},
                                 "{batch, seq, dim, state}");
  }
  return problem;
}

ScanCall gradient_call(const ScanGradProblem& problem, const ScanGradOutputs& outputs) {
  ScanCall call = problem.scan;
  for (const ScanOperand id :
       {ScanOperand::y, ScanOperand::y_reverse, ScanOperand::final_state, ScanOperand::states}) {
    call.set_given(id, nullptr);
  }
  call.set(ScanOperand::dy, problem.dy);
  call.set_given(ScanOperand::d_final_state, problem.d_final_state);
  call.set_given(ScanOperand::given_states, problem.states);
  call.set_given(ScanOperand::grad_x, outputs.x);
  call.set_given(ScanOperand::grad_dt, outputs.dt);
  call.set_given(ScanOperand::grad_a, outputs.a);
  call.set_given(ScanOperand::grad_b, outputs.b);
  call.set_given(ScanOperand::grad_c, outputs.c);
  call.set_given(ScanOperand::grad_d, outputs.d);
  call.set_given(ScanOperand::grad_z, outputs.z);
  call.set_given(ScanOperand::grad_dt_bias, outputs.dt_bias);
  call.set_given(ScanOperand::grad_initial_state, outputs.initial_state);
  return call;
}

}  // namespace exphil::core
