// A call of a fused recurrent operator, or of its gradient, validated. validate_recurrent turns the caller's
// tensors into a RecurrentCall or throws; backends take only those and do not check again. Plain data: safe
// to share while the caller's tensors are valid.
//
// The tensors are a table (core/operands.hpp), all of one type (f32, f16 or bf16):
//
//   x0, x1, x2         the inputs of the operator's row                  in
//   h0, c0             {batch, hidden}: the states before the first step; zeros where left out; c0 of
//                      lstm_scan alone                                   in
//   h                  {batch, seq, hidden}: the state after each step   out
//   final_h, final_c   {batch, hidden}: the states after the last step   out
//
// The gradient, of a real function L of h and of the last states, has the same inputs, and instead of the
// results
//   dh                 like h: dL/dh                                     in
//   d_final_h, d_final_c  like the final states, zeros where left out    in
//   given_h            like h: what the operator returned for the same inputs; saves computing it again where
//                      the type is f32 and the cell has no product       in
//   grad_x0, ...       like their operand                                out
//   grad_rh            {batch, seq, gates hidden}: dL by h_(t-1) r, of dense cells; grad_r is the sum of its
//                      products with h_(t-1)                             out
//
// Halves are computed in f32 and rounded once.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/operator_call.hpp"
#include "core/recurrent/operators.hpp"

namespace exphil::core {

enum class RecurrentOperand : std::uint8_t {
  x0,
  x1,
  x2,
  h0,
  c0,
  h,
  final_h,
  final_c,
  dh,
  d_final_h,
  d_final_c,
  given_h,
  grad_x0,
  grad_x1,
  grad_x2,
  grad_h0,
  grad_c0,
  grad_rh
};
template <>
inline constexpr std::size_t kOperandCount<RecurrentOperand> =
    static_cast<std::size_t>(RecurrentOperand::grad_rh) + 1;

// The operand `index` places behind another one: x0 and grad_x0 have the rest of their kind behind them.
constexpr RecurrentOperand behind(RecurrentOperand first, int index) {
  return static_cast<RecurrentOperand>(static_cast<int>(first) + index);
}

struct RecurrentShape : PresentOperands<RecurrentOperand> {
  RecurrentOp op = RecurrentOp::mingru;
  formulas::Cell cell = formulas::Cell::min_gru;
  Dtype dtype = Dtype::f32;
  std::int64_t batch = 0, seq = 0, hidden = 0;

  const RecurrentRow& row() const { return recurrent_row(op); }
  bool dense() const { return formulas::recurrent(cell); }
  std::int64_t gates() const { return formulas::gates_of(cell); }
};

Operand describe(const RecurrentShape& shape, RecurrentOperand id);

// Host memory, or a device's in the calls of cuda/ and of XLA. Null where the call has none.
template <class Pointer>
using RecurrentOperands = PerOperand<RecurrentOperand, Pointer>;

using RecurrentCall = OperatorCall<RecurrentShape, RecurrentOperand>;
using RecurrentTensors = PerOperand<RecurrentOperand, std::optional<TensorView>>;

// Of the tensors that come in; with dh, the gradient. Reads no element. The results are left to the caller.
// Throws core::Error (invalid_argument, unsupported, limit_exceeded) that names the argument.
RecurrentCall validate_recurrent(RecurrentOp op, bool activated, const RecurrentTensors& tensors);

// Throws invalid_argument naming `argument` unless the call can have this result.
void require_recurrent_result(const RecurrentShape& shape, RecurrentOperand id, const char* argument);

// As errors spell it: "wx", ":h0".
const char* recurrent_operand_name(RecurrentOp op, RecurrentOperand id);

// The operand that a call names: those that come in ("h0", "dh", "h" for given_h, ...) or, with Flow::out,
// the results ("final_h", and of the gradient those of the operands: "gates", "h0", "rh"). Empty for another
// name.
std::optional<RecurrentOperand> recurrent_operand_named(RecurrentOp op, bool gradient, Flow flow,
                                                        const std::string& name);

// The functions above for callers that name the tensors (nif/, xla/).
struct NamedRecurrent {
  using Id = RecurrentOperand;
  static constexpr Id kResult = Id::h, kGradientOfResult = Id::dh;

  RecurrentOp op = RecurrentOp::mingru;
  bool activated = false, gradient = false;

  std::string title() const {  // as errors spell it
    return std::string(recurrent_row(op).name) + (gradient ? "'s gradient" : "");
  }
  std::vector<Id> inputs() const;
  const char* name_of(Id id) const { return recurrent_operand_name(op, id); }
  std::optional<Id> operand_named(Flow flow, const std::string& name) const {
    return recurrent_operand_named(op, gradient, flow, name);
  }
  RecurrentCall validate(const RecurrentTensors& tensors) const {
    return validate_recurrent(op, activated, tensors);
  }
  static void require_result(const RecurrentShape& shape, Id id, const char* argument) {
    require_recurrent_result(shape, id, argument);
  }
};

}  // namespace exphil::core
