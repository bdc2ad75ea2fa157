// A selective scan, validated. `validate_scan` turns the caller's tensors and options into a ScanCall or
// throws. Backends take only ScanCalls and do not check again. Plain data: safe to share while the caller's
// tensors are valid.
//
// Shapes and the recurrence are those of the README and of Gu & Dao, "Mamba" (2023), section 3.2:
//   dt' = clip(softplus(dt + dt_bias)); h_t = Abar h_(t-1) + Bbar x_t; y_t = <C_t, h_t> + D x_t;
//   y_t *= silu(z_t)
#pragma once

#include <optional>

#include "core/limits.hpp"
#include "core/operator_call.hpp"
#include "core/scan/operands.hpp"
#include "core/scan/shape.hpp"
#include "core/tensor.hpp"

namespace exphil::core {

struct ScanInputs {
  TensorView x, dt, a, b, c;
  std::optional<TensorView> d, z, dt_bias, initial_state;
};

// The results of a scan beside y, and beside y_reverse where both directions are scanned.
struct ScanResults {
  bool final_state = false, states = false;
};

using ScanCall = OperatorCall<ScanShape, ScanOperand>;

// Reads no element, so the views may point to device memory. Every operand of the returned shape has the best
// alignment. The addresses of the results are null: the caller fills them in. Throws core::Error
// (invalid_argument, unsupported, limit_exceeded) naming the argument, what was expected and what was given.
ScanCall validate_scan(const ScanInputs& inputs, const ScanOptions& options, const ScanResults& results = {});

}  // namespace exphil::core
