// How dt becomes dt' in the scans of state space models: dt' = clip(softplus(dt + bias)), with the options of
// a call. Used by core/scan and core/ssd. Plain values; any thread.
#pragma once

#include <limits>

#include "kernels/common/gradient_formulas.cuh"

namespace exphil::core {

struct DtOptions {
  bool dt_softplus = false;
  // dt' is clamped to [dt_min, dt_max], applied last.
  float dt_min = -std::numeric_limits<float>::infinity();
  float dt_max = std::numeric_limits<float>::infinity();
};

// Throws invalid_argument for a bound that is not a number and for bounds in the wrong order.
void check_dt_range(const DtOptions& options);

template <class Math, class T>
T activate_dt(const DtOptions& o, T dt, T bias) {
  return formulas::activate_dt<Math>(dt, bias, o.dt_softplus, static_cast<T>(o.dt_min),
                                     static_cast<T>(o.dt_max));
}

// The gradient of dt from that of dt'.
template <class Math, class T>
T activate_dt_gradient(const DtOptions& o, T dt, T bias, T gradient) {
  return formulas::activate_dt_gradient<Math>(dt, bias, o.dt_softplus, static_cast<T>(o.dt_min),
                                              static_cast<T>(o.dt_max), gradient);
}

}  // namespace exphil::core
