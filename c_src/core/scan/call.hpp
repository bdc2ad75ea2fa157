// A selective scan, validated. `validate_scan` turns the caller's tensors and options into a ScanCall or
// throws. Backends take only ScanCalls and do not check again. Plain data: safe to share while the caller's
// tensors are valid.
//
// Shapes and the recurrence are those of the README and of Gu & Dao, "Mamba" (2023), section 3.2:
//   dt' = clip(softplus(dt + dt_bias)); h_t = Abar h_(t-1) + Bbar x_t; y_t = <C_t, h_t> + D x_t;
//   y_t *= silu(z_t)
#pragma once

#include <optional>

#include "core/device_ranges.hpp"
#include "core/limits.hpp"
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

// A shape and the addresses of its operands, in host memory or on a device. Inputs are never written.
struct ScanCall {
  ScanShape shape;
  ScanOperands<void*> operands;
  DeviceRanges on_device;  // of a call on host tensors: the inputs that are in device memory all the same

  // Sets the operand's address and its presence: a null address means absent. The address of a tensor without
  // elements may be null: then set the shape and the address separately.
  void set(ScanOperand id, const void* address) {
    if (address != nullptr) {
      shape.add(id);
    } else {
      shape.remove(id);
    }
    operands[id] = const_cast<void*>(address);
  }
};

// Reads no element, so the views may point to device memory. Every operand of the returned shape has the best
// alignment. The addresses of the results are null: the caller fills them in. Throws core::Error
// (invalid_argument, unsupported, limit_exceeded) naming the argument, what was expected and what was given.
ScanCall validate_scan(const ScanInputs& inputs, const ScanOptions& options, const ScanResults& results = {});

}  // namespace exphil::core
