#include "core/scan/problem.hpp"

#include <cmath>
#include <string>

#include "core/error.hpp"
#include "core/scan/checks.hpp"

namespace exphil::core {

void wrong_shape(const TensorView& view, const std::string& name, const std::string& expected) {
  fail(ErrorKind::invalid_argument, name, name, " must be ", expected, "; got shape ",
       view.shape.to_string());
}

void require_shape(const TensorView& view, const std::string& name, const Shape& expected,
                   const std::string& axes) {
  if (view.shape != expected) wrong_shape(view, name, axes + " = " + expected.to_string());
}

void require_dtype(const TensorView& view, const std::string& name, Dtype expected, const std::string& why) {
  if (view.dtype == expected) return;
  fail(ErrorKind::invalid_argument, name, name, " must be ", dtype_name(expected), why, "; got ",
       dtype_name(view.dtype));
}

namespace {

using formulas::Discretization;

void require_limit(std::int64_t size, std::int64_t limit, const std::string& name, const std::string& axis) {
  if (size > limit) {
    fail(ErrorKind::limit_exceeded, name, axis, " of ", name, " is ", size, "; the limit is ", limit);
  }
}

void require_not_empty(const TensorView& view, const std::string& name, int axis, const std::string& axes,
                       const std::string& axis_name) {
  const std::int64_t size = view.shape[axis];
  if (size > 0) return;
  fail(ErrorKind::invalid_argument, name, name, " must be ", axes, " with ", axis_name,
       " at least 1; got shape ", view.shape.to_string());
}

void take_x(const TensorView& x, ScanProblem* problem) {
  if (x.shape.rank() != 3) wrong_shape(x, "x", "{batch, seq, dim}");
  require_not_empty(x, "x", 0, "{batch, seq, dim}", "batch");
  require_not_empty(x, "x", 2, "{batch, seq, dim}", "dim");
  if (x.shape[1] < 0) wrong_shape(x, "x", "{batch, seq, dim} with seq at least 0");
  if (x.dtype != Dtype::f32 && x.dtype != Dtype::f16 && x.dtype != Dtype::bf16) {
    fail(ErrorKind::unsupported, "x", "x must be f32, f16 or bf16; got ", dtype_name(x.dtype));
  }
  problem->batch = x.shape[0];
  problem->seq = x.shape[1];
  problem->dim = x.shape[2];
  problem->dtype = x.dtype;
  problem->x = x.data;
  require_limit(problem->dim, kMaxDim, "x", "dim");
  check_bytes(x, "x");
}

void take_a(const TensorView& a, const ScanOptions& options, ScanProblem* problem) {
  const int rank = a.shape.rank();
  if ((rank != 2 && rank != 3) || a.shape[0] != problem->dim || (rank == 3 && a.shape[1] != a.shape[2])) {
    wrong_shape(a, "a",
                message("{dim, state}, or {dim, state, state} with :bilinear, where dim = ", problem->dim));
  }
  require_not_empty(a, "a", 1, "{dim, state}", "state");
  if (a.dtype != Dtype::f32 && a.dtype != Dtype::c64) {
    fail(ErrorKind::invalid_argument, "a", "a must be f32 (or c64 for a complex scan); got ",
         dtype_name(a.dtype));
  }
  problem->state = a.shape[1];
  problem->complex = a.dtype == Dtype::c64;
  problem->full_matrix = rank == 3;
  problem->a = static_cast<const float*>(a.data);
  if (problem->full_matrix && options.discretization != Discretization::bilinear) {
    fail(ErrorKind::unsupported, "a",
         "a full matrix a {dim, state, state} works with :bilinear only; got shape ", a.shape.to_string(),
         " with another :discretization");
  }
  if (problem->full_matrix && problem->complex) {
    fail(ErrorKind::unsupported, "a", "a full matrix a {dim, state, state} must be f32; got c64");
  }
  require_limit(problem->state, problem->full_matrix ? kMaxFullMatrixState : kMaxState, "a", "state");
  check_bytes(a, "a");
}

// x, dt, z of one dtype; c64 scans keep them in f32.
void check_stream_dtypes(const ScanInputs& inputs, const ScanProblem& problem) {
  if (problem.complex) {
    const std::string why = " where a is c64";
    require_dtype(inputs.x, "x", Dtype::f32, why);
    require_dtype(inputs.dt, "dt", Dtype::f32, why);
    if (inputs.z) require_dtype(*inputs.z, ":z", Dtype::f32, why);
    return;
  }
  require_dtype(inputs.dt, "dt", problem.dtype, " like x");
  if (inputs.z) require_dtype(*inputs.z, ":z", problem.dtype, " like x");
}

ProjectionLayout take_projection(const TensorView& view, const std::string& name,
                                 const ScanProblem& problem) {
  if (problem.complex) {
    require_dtype(view, name, Dtype::c64, " like a");
  } else {
    require_dtype(view, name, problem.dtype, " like x");
  }
  ProjectionLayout layout;
  switch (view.shape.rank()) {
    case 2:
      layout.constant = true;
      require_shape(view, name, Shape{problem.dim, problem.state}, "{dim, state}");
      break;
    case 3:
      require_shape(view, name, Shape{problem.batch, problem.seq, problem.state}, "{batch, seq, state}");
      break;
    case 4:
      layout.groups = view.shape[2];
      if (layout.groups < 1 || problem.dim % layout.groups != 0) {
        wrong_shape(view, name,
                    message("{batch, seq, groups, state} with groups dividing dim = ", problem.dim));
      }
      require_shape(view, name, Shape{problem.batch, problem.seq, layout.groups, problem.state},
                    "{batch, seq, groups, state}");
      break;
    default:
      wrong_shape(view, name, "{batch, seq, state}, {batch, seq, groups, state} or {dim, state}");
  }
  check_bytes(view, name);
  return layout;
}

const float* take_channel_vector(const std::optional<TensorView>& view, const std::string& name,
                                 const ScanProblem& problem) {
  if (!view) return nullptr;
  require_dtype(*view, name, Dtype::f32, "");
  require_shape(*view, name, Shape{problem.dim}, "{dim}");
  check_bytes(*view, name);
  return static_cast<const float*>(view->data);
}

const float* take_initial_state(const std::optional<TensorView>& view, const ScanProblem& problem) {
  if (!view) return nullptr;
  const std::string name = ":initial_state";
  if (problem.options.direction == Direction::both) {
    fail(ErrorKind::unsupported, name, name, " is not supported where both directions are scanned");
  }
  require_dtype(*view, name, problem.complex ? Dtype::c64 : Dtype::f32, problem.complex ? " like a" : "");
  require_shape(*view, name, Shape{problem.batch, problem.dim, problem.state}, "{batch, dim, state}");
  check_bytes(*view, name);
  return static_cast<const float*>(view->data);
}

void check_options(const ScanOptions& options) {
  if (std::isnan(options.dt_min) || std::isnan(options.dt_max) || options.dt_min > options.dt_max) {
    fail(ErrorKind::invalid_argument, ":dt_range", ":dt_range must be {min, max} with min at most max; got {",
         options.dt_min, ", ", options.dt_max, "}");
  }
}

void check_result_sizes(const ScanProblem& problem) {
  const std::int64_t per_step = checked_multiply(problem.batch, problem.dim, "x");
  const std::int64_t states = checked_multiply(per_step, problem.state, "a");
  checked_multiply(states, 2 * sizeof(float), "a");
}

}  // namespace

ScanProblem validate_scan(const ScanInputs& inputs, const ScanOptions& options) {
  check_options(options);
  ScanProblem problem;
  problem.options = options;
  take_x(inputs.x, &problem);
  take_a(inputs.a, options, &problem);
  check_stream_dtypes(inputs, problem);
  require_shape(inputs.dt, "dt", inputs.x.shape, "{batch, seq, dim}");
  check_bytes(inputs.dt, "dt");
  problem.dt = inputs.dt.data;
  problem.b_layout = take_projection(inputs.b, "b", problem);
  problem.b = inputs.b.data;
  problem.c_layout = take_projection(inputs.c, "c", problem);
  problem.c = inputs.c.data;
  if (inputs.z) {
    require_shape(*inputs.z, ":z", inputs.x.shape, "{batch, seq, dim}");
    check_bytes(*inputs.z, ":z");
    problem.z = inputs.z->data;
  }
  problem.d = take_channel_vector(inputs.d, ":d", problem);
  problem.dt_bias = take_channel_vector(inputs.dt_bias, ":dt_bias", problem);
  problem.initial_state = take_initial_state(inputs.initial_state, problem);
  check_result_sizes(problem);
  return problem;
}

}  // namespace exphil::core
