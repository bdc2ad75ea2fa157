// The selective scan, in all its forms: scan, step, bidirectional and scan_with_states are one NIF whose
// request says what to compute.
#include "nif/scan_request.hpp"

#include "nif/functions.hpp"

namespace exphil::nif {

namespace {

// States are f32, or c64 where the scan is complex.
Term encode_state(Call& call, const core::ScanProblem& problem, const core::Shape& shape, Result& result) {
  return encode_tensor(call, problem.complex ? core::Dtype::c64 : core::Dtype::f32, shape, result.term());
}

std::size_t y_bytes(const core::ScanProblem& problem) {
  const std::int64_t size = static_cast<std::int64_t>(core::dtype_size(problem.dtype));
  return static_cast<std::size_t>(core::checked_multiply(problem.y_elements(), size, "x"));
}

std::size_t state_bytes(const core::ScanProblem& problem, std::int64_t copies) {
  const std::int64_t floats = core::checked_multiply(problem.state_floats(), copies, "x");
  return static_cast<std::size_t>(core::checked_multiply(floats, sizeof(float), "x"));
}

}  // namespace

// {y, y_reverse | nil, final_state | nil, states | nil}
Term scan(Call& call, BackendChoice choice, std::int64_t device, core::TensorView x, core::TensorView dt,
          core::TensorView a, core::TensorView b, core::TensorView c, MaybeTensor d, MaybeTensor z,
          MaybeTensor dt_bias, MaybeTensor initial_state, ScanRequest request) {
  const core::ScanInputs inputs{x, dt, a, b, c, d, z, dt_bias, initial_state};
  const core::ScanProblem problem = core::validate_scan(inputs, request.options);
  core::Backend& backend = open_backend(choice, device);
  const core::Shape y_shape{problem.batch, problem.seq, problem.dim};
  const core::Shape state_shape{problem.batch, problem.dim, problem.state};
  const core::Shape states_shape{problem.batch, problem.seq, problem.dim, problem.state};

  core::ScanOutputs outputs;
  std::optional<Result> y_reverse, final_state, states;
  Result y(call, backend, y_bytes(problem));
  outputs.y = y.data();
  if (request.options.direction == core::Direction::both) {
    outputs.y_reverse = y_reverse.emplace(call, backend, y_bytes(problem)).data();
  }
  if (request.final_state) {
    outputs.final_state = final_state.emplace(call, backend, state_bytes(problem, 1)).floats();
  }
  if (request.states) {
    outputs.states = states.emplace(call, backend, state_bytes(problem, problem.seq)).floats();
  }
  backend.scan(problem, outputs);

  const Term nil = encode_atom(call, "nil");
  return enif_make_tuple4(call.env(), encode_tensor(call, problem.dtype, y_shape, y.term()),
                          y_reverse ? encode_tensor(call, problem.dtype, y_shape, y_reverse->term()) : nil,
                          final_state ? encode_state(call, problem, state_shape, *final_state) : nil,
                          states ? encode_state(call, problem, states_shape, *states) : nil);
}

}  // namespace exphil::nif
