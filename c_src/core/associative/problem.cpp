#include "core/associative/problem.hpp"

#include <string>

#include "core/error.hpp"

namespace exphil::core {

namespace {

// The name of the scanned tensor in the public call: linear_recurrence(a, b), else (x).
const char* tensor_name(AssociativeOp op) {
  return op == AssociativeOp::linear_recurrence ? "b" : "x";
}

bool supports(AssociativeOp op, Dtype dtype) {
  switch (dtype) {
    case Dtype::f32:
    case Dtype::f16:
    case Dtype::bf16:
      return true;
    case Dtype::c64:
      return op == AssociativeOp::cumsum || op == AssociativeOp::linear_recurrence;
    case Dtype::s32:
    case Dtype::s64:
      return op == AssociativeOp::cumsum || op == AssociativeOp::cummax || op == AssociativeOp::cummin;
    default:
      return false;
  }
}

const char* supported_dtypes(AssociativeOp op) {
  switch (op) {
    case AssociativeOp::cumsum:
      return "f32, f16, bf16, c64, s32 or s64";
    case AssociativeOp::cumprod:
      return "f32, f16 or bf16";
    case AssociativeOp::linear_recurrence:
      return "f32, f16, bf16 or c64";
    default:
      return "f32, f16, bf16, s32 or s64";
  }
}

void take_x(AssociativeOp op, const TensorView& x, AssociativeProblem* problem) {
  const char* name = tensor_name(op);
  const int rank = x.shape.rank();
  if (rank < 1 || rank > kMaxAssociativeRank) {
    fail(ErrorKind::invalid_argument, name, name, " must have rank 1 to ", kMaxAssociativeRank,
         "; got shape ", x.shape.to_string());
  }
  for (int axis = 0; axis < rank; ++axis) {
    if (x.shape[axis] < 0) {
      fail(ErrorKind::invalid_argument, name, name, " must not have a negative dimension; got shape ",
           x.shape.to_string());
    }
  }
  if (!supports(op, x.dtype)) {
    fail(ErrorKind::unsupported, name, associative_op_name(op), " takes ", supported_dtypes(op), "; got ",
         dtype_name(x.dtype));
  }
  check_bytes(x, name);
  problem->dtype = x.dtype;
  problem->x = x.data;
}

void take_a(AssociativeOp op, const AssociativeInputs& inputs, AssociativeProblem* problem) {
  if (op != AssociativeOp::linear_recurrence) {
    if (inputs.a) fail(ErrorKind::invalid_argument, "a", associative_op_name(op), " takes no a");
    return;
  }
  if (!inputs.a) fail(ErrorKind::invalid_argument, "a", "linear_recurrence needs a");
  const TensorView& a = *inputs.a;
  if (a.dtype != inputs.x.dtype) {
    fail(ErrorKind::invalid_argument, "a", "a must be ", dtype_name(inputs.x.dtype), " like b; got ",
         dtype_name(a.dtype));
  }
  if (a.shape != inputs.x.shape) {
    fail(ErrorKind::invalid_argument, "a", "a must have the shape of b, ", inputs.x.shape.to_string(),
         "; got shape ", a.shape.to_string());
  }
  check_bytes(a, "a");
  problem->a = a.data;
}

void take_axis(const Shape& shape, std::int64_t given, AssociativeProblem* problem) {
  const int rank = shape.rank();
  if (given < -rank || given >= rank) {
    fail(ErrorKind::invalid_argument, ":axis", ":axis must be from ", -rank, " to ", rank - 1, " for shape ",
         shape.to_string(), "; got ", given);
  }
  const int axis = static_cast<int>(given < 0 ? given + rank : given);
  // The full shape's product fits in 63 bits, but a zero may hide factors that do not.
  problem->outer = problem->inner = 1;
  for (int i = 0; i < axis; ++i) problem->outer = checked_multiply(problem->outer, shape[i], ":axis");
  for (int i = axis + 1; i < rank; ++i) problem->inner = checked_multiply(problem->inner, shape[i], ":axis");
  problem->length = shape[axis];
}

void take_initial(AssociativeOp op, const AssociativeInputs& inputs, std::int64_t axis,
                  AssociativeProblem* problem) {
  if (!inputs.initial_state) return;
  const char* name = "initial_state";
  if (op != AssociativeOp::linear_recurrence) {
    fail(ErrorKind::invalid_argument, name, associative_op_name(op), " takes no initial_state");
  }
  const TensorView& initial = *inputs.initial_state;
  const Shape& shape = inputs.x.shape;
  Shape expected;
  for (int i = 0; i < shape.rank(); ++i) {
    if (i != (axis < 0 ? axis + shape.rank() : axis)) expected.push_back(shape[i]);
  }
  if (initial.dtype != inputs.x.dtype || initial.shape != expected) {
    fail(ErrorKind::invalid_argument, name, "initial_state must be ", dtype_name(inputs.x.dtype), " ",
         expected.to_string(), ", b without the scanned axis; got ", dtype_name(initial.dtype), " ",
         initial.shape.to_string());
  }
  check_bytes(initial, name);
  problem->initial = initial.data;
}

void take_options(AssociativeOp op, const AssociativeOptions& options, AssociativeProblem* problem) {
  const std::int64_t block = options.block_size;
  const bool power_of_two = (block & (block - 1)) == 0;
  if (block != 0 && (block < kMinBlockSize || block > kMaxBlockSize || !power_of_two)) {
    fail(ErrorKind::invalid_argument, ":block_size", ":block_size must be a power of two from ",
         kMinBlockSize, " to ", kMaxBlockSize, "; got ", block);
  }
  const bool floating = problem->dtype != Dtype::s32 && problem->dtype != Dtype::s64;
  if (options.compensated && (op != AssociativeOp::cumsum || !floating)) {
    fail(ErrorKind::invalid_argument, ":compensated",
         ":compensated is for the cumsum of floating-point numbers; got ", associative_op_name(op), " of ",
         dtype_name(problem->dtype));
  }
  problem->block_size = block;
  problem->compensated = options.compensated;
  problem->direction = options.direction;
}

}  // namespace

const char* associative_op_name(AssociativeOp op) {
  switch (op) {
    case AssociativeOp::cumsum:
      return "cumsum";
    case AssociativeOp::cumprod:
      return "cumprod";
    case AssociativeOp::cummax:
      return "cummax";
    case AssociativeOp::cummin:
      return "cummin";
    case AssociativeOp::linear_recurrence:
      return "linear_recurrence";
  }
  return "unknown";
}

AssociativeProblem validate_associative(AssociativeOp op, const AssociativeInputs& inputs,
                                        const AssociativeOptions& options) {
  AssociativeProblem problem;
  problem.op = op;
  take_x(op, inputs.x, &problem);
  take_a(op, inputs, &problem);
  take_axis(inputs.x.shape, options.axis, &problem);
  take_initial(op, inputs, options.axis, &problem);
  take_options(op, options, &problem);
  return problem;
}

}  // namespace exphil::core
