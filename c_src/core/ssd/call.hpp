// A call of the operator of Mamba-2 (state space duality), or of its gradient, validated. validate_ssd turns
// the caller's tensors into an SsdCall or throws; backends take only those and do not check again. Plain
// data: safe to share while the caller's tensors are valid.
//
//   dt' = clip(softplus(dt + dt_bias));  S' = exp(a dt') S + (dt' x) b^T;  y = (S' c + d x) silu(z)
//
// for each head, whose state S is a matrix {headdim, state}; b and c are of the head's group. Source: Dao and
// Gu, "Transformers are SSMs" (2024), section 6; mamba_ssm's mamba_chunk_scan_combined. The tensors are a
// table (core/operands.hpp):
//
//   x                    {batch, seq, heads, headdim}                                     in
//   dt                   {batch, seq, heads}                                              in
//   a, dt_bias           {heads}                                                          in
//   b, c                 {batch, seq, groups, state}; head h has group h div (heads / groups)  in
//   d                    {heads} or {heads, headdim}                                      in
//   z                    like x                                                           in
//   initial_state        {batch, heads, headdim, state}: zeros where left out             in
//   y                    like x                                                           out
//   final_state          like initial_state                                               out
//
// The gradient, of a real function L of y and of the final state, has the same inputs, and instead of the
// results
//   dy                   like x: dL/dy                                                    in
//   d_final_state        like initial_state: zeros where left out                         in
//   grad_x, ...          like their operand                                               out
//
// x, dt, b, c, z, y and dy have one type of f32, f16 and bf16; the others are f32. Halves are computed in f32
// and rounded once. Only dt_bias, d, z, the states and the results may be left out.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/dt_options.hpp"
#include "core/operator_call.hpp"

namespace exphil::core {

enum class SsdOperand : std::uint8_t {
  x,
  dt,
  a,
  b,
  c,
  d,
  z,
  dt_bias,
  initial_state,
  y,
  final_state,
  dy,
  d_final_state,
  grad_x,
  grad_dt,
  grad_a,
  grad_b,
  grad_c,
  grad_d,
  grad_z,
  grad_dt_bias,
  grad_initial_state
};
template <>
inline constexpr std::size_t kOperandCount<SsdOperand> =
    static_cast<std::size_t>(SsdOperand::grad_initial_state) + 1;

// The first inputs of each call, in this order.
inline constexpr SsdOperand kSsdInputs[] = {SsdOperand::x, SsdOperand::dt, SsdOperand::a, SsdOperand::b,
                                            SsdOperand::c};

struct SsdShape : PresentOperands<SsdOperand> {
  Dtype dtype = Dtype::f32;  // of x
  std::int64_t batch = 0, seq = 0, heads = 0, headdim = 0, groups = 0, state = 0;
  bool skip_of_head = true;  // d is {heads}
  DtOptions options;

  bool gradient() const { return has(SsdOperand::dy); }
  std::int64_t group_of(std::int64_t head) const { return head / (heads / groups); }
  std::int64_t skips() const { return skip_of_head ? heads : heads * headdim; }
};

Operand describe(const SsdShape& shape, SsdOperand id);

// Host memory, or a device's in the calls of cuda/ and of XLA. Null where the call has none.
template <class Pointer>
using SsdOperands = PerOperand<SsdOperand, Pointer>;

using SsdCall = OperatorCall<SsdShape, SsdOperand>;
using SsdTensors = PerOperand<SsdOperand, std::optional<TensorView>>;

// Of the tensors that come in; with dy, the gradient. Reads no element. The results are left to the caller.
// Throws core::Error (invalid_argument, unsupported, limit_exceeded) that names the argument.
SsdCall validate_ssd(const DtOptions& options, const SsdTensors& tensors);

// Throws invalid_argument naming `argument` unless the call can have this result.
void require_ssd_result(const SsdShape& shape, SsdOperand id, const char* argument);

// The operand that a call names: those that come in ("dt_bias", "dy", ...) or, with Flow::out, the results
// ("y", "final_state", and of the gradient those of the operands: "x", "dt_bias", ...). Empty for another
// name.
std::optional<SsdOperand> ssd_operand_named(bool gradient, Flow flow, const std::string& name);

// As errors spell it: "x", ":dt_bias".
const char* ssd_operand_name(SsdOperand id);

// The functions above for callers that name the tensors (nif/, xla/).
struct NamedSsd {
  using Id = SsdOperand;
  static constexpr Id kResult = Id::y, kGradientOfResult = Id::dy;

  DtOptions options;
  bool gradient = false;

  std::string title() const { return gradient ? "the gradient" : "the scan"; }  // as errors spell it
  std::vector<Id> inputs() const { return {std::begin(kSsdInputs), std::end(kSsdInputs)}; }
  const char* name_of(Id id) const { return ssd_operand_name(id); }
  std::optional<Id> operand_named(Flow flow, const std::string& name) const {
    return ssd_operand_named(gradient, flow, name);
  }
  SsdCall validate(const SsdTensors& tensors) const { return validate_ssd(options, tensors); }
  static void require_result(const SsdShape& shape, Id id, const char* argument) {
    require_ssd_result(shape, id, argument);
  }
};

}  // namespace exphil::core
