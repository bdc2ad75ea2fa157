// Reads the arguments, attributes and results that the handlers of the scan and of its gradient share. Every
// reader throws core::Error (invalid_argument) that names the argument or attribute. Callers: scan.cpp and
// scan_gradient.cpp. Plain functions: any thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/scan/call.hpp"
#include "xla/platforms.hpp"

namespace exphil::xla {

struct OptionalArgument {
  const char* name;
  std::optional<core::TensorView>* view;
};

struct NamedOperand {
  const char* name;
  core::ScanOperand operand;
};

// dt_softplus, dt_min and dt_max, all optional. Used by ssd.cpp too.
void read_dt_options(const Frame& frame, core::DtOptions* options);

// discretization, direction, algorithm, dt_softplus, dt_min, dt_max, all optional. Throws for an attribute
// that is neither one of these nor operands, results or, of a gradient, dy.
core::ScanOptions read_scan_options(const Frame& frame, bool gradient = false);

// x, dt, a, b, c from argument `first` on; then, from argument `first_optional` on, those in the
// attribute `operands`, in its order: any of d, z, dt_bias, initial_state and of `more`.
core::ScanInputs read_scan_inputs(const Frame& frame, std::int64_t first, std::int64_t first_optional,
                                  const std::vector<OptionalArgument>& more = {});

// The results that the attribute `results` lists; each must be in `known`, and appear at most once.
std::vector<NamedOperand> read_results(const Frame& frame, const std::vector<NamedOperand>& known);

// Throws unless the call has `count` results.
void require_result_count(const Frame& frame, std::size_t count);

// The address of result `index`, whose type and shape must be those of the operand.
void* read_result(const Frame& frame, std::int64_t index, const core::ScanShape& shape,
                  const NamedOperand& result);

#ifdef EXPHIL_CUDA
// A call on XLA's device memory: its addresses, and its shape with their alignment.
struct DeviceCall {
  core::ScanShape shape;
  core::ScanOperands<CUdeviceptr> operands;
};
DeviceCall device_call(const core::ScanCall& call);
#endif

}  // namespace exphil::xla
