#include "host/recurrent/cells.hpp"

#include <algorithm>
#include <cstring>

#include "core/recurrent/cells.hpp"
#include "core/work/background.hpp"
#include "host/simd/convert.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "host/recurrent/cells.cpp"
// clang-format off
#include "host/simd/simd.hpp"
#include <hwy/foreach_target.h>
#include "host/simd/convert-inl.hpp"
#include "host/simd/math-inl.hpp"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace exphil {
namespace host {
namespace HWY_NAMESPACE {

using core::Dtype;
using formulas::Cell;

// Between two calls of give_way(): some 10 us.
inline constexpr std::int64_t kStepsPerOffer = 16;

// The element `elements` behind an address.
const void* at(Dtype dtype, const void* data, std::int64_t elements) {
  return static_cast<const char*>(data) + elements * static_cast<std::int64_t>(core::dtype_size(dtype));
}
void* at(Dtype dtype, void* data, std::int64_t elements) {
  return static_cast<char*>(data) + elements * static_cast<std::int64_t>(core::dtype_size(dtype));
}

void widen_or_zero(Dtype dtype, const void* from, std::int64_t count, float* to) {
  if (from != nullptr) return run_widen_row(dtype, from, count, to);
  std::fill_n(to, padded(count), 0.0f);
}

// The inputs of one step of a sweep, as floats.
template <Cell kCell>
struct StepInputs {
  static constexpr int kGates = formulas::gates_of(kCell);
  HWY_ALIGN float x[kGates][kSweepColumns];

  void read(const LinearSweep& s, std::int64_t t) {
    for (int gate = 0; gate < kGates; ++gate) {
      run_widen_row(s.dtype, at(s.dtype, s.x[gate], t * s.stride), s.columns, x[gate]);
    }
  }
  HWY_INLINE void load_gates(std::int64_t i, F (&gates)[kGates]) const {
    for (int gate = 0; gate < kGates; ++gate) gates[gate] = load(x[gate] + i);
  }
};

// before: null, or receives the state before each step.
template <Cell kCell>
void advance_sweep(const LinearSweep& s, float* before) {
  StepInputs<kCell> inputs;
  HWY_ALIGN float h[kSweepColumns];
  const std::int64_t width = padded(s.columns);
  widen_or_zero(s.dtype, s.h0, s.columns, h);
  for (std::int64_t t = 0; t < s.steps; ++t) {
    if (t % kStepsPerOffer == 0) core::give_way();
    if (before != nullptr) std::copy(h, h + width, before + t * width);
    inputs.read(s, t);
    for (std::int64_t i = 0; i < width; i += kLanes) {
      F gates[StepInputs<kCell>::kGates], state = load(h + i);
      inputs.load_gates(i, gates);
      store(formulas::advance_cell<kCell, Math>(gates, gates, &state), h + i);
    }
    if (s.h != nullptr) run_narrow_row(s.dtype, h, s.columns, at(s.dtype, s.h, t * s.stride));
  }
  if (s.final_h != nullptr) run_narrow_row(s.dtype, h, s.columns, s.final_h);
}

template <Cell kCell>
void sweep_back(const LinearSweepBack& b) {
  constexpr int kGates = formulas::gates_of(kCell);
  const LinearSweep& s = b.of;
  const std::int64_t width = padded(s.columns);
  StepInputs<kCell> inputs;
  HWY_ALIGN float d[kSweepColumns], dh[kSweepColumns], d_x[kGates][kSweepColumns];
  widen_or_zero(s.dtype, b.d_final, s.columns, d);
  for (std::int64_t t = s.steps; t-- > 0;) {
    if (t % kStepsPerOffer == 0) core::give_way();
    inputs.read(s, t);
    run_widen_row(s.dtype, at(s.dtype, b.dh, t * s.stride), s.columns, dh);
    for (std::int64_t i = 0; i < width; i += kLanes) {
      F gates[kGates], d_gates[kGates], state = load(b.before + t * width + i);
      F d_state = load(d + i) + load(dh + i);
      inputs.load_gates(i, gates);
      formulas::cell_gradient<kCell, Math>(gates, gates, &state, &d_state, d_gates, d_gates);
      store(d_state, d + i);
      for (int gate = 0; gate < kGates; ++gate) store(d_gates[gate], d_x[gate] + i);
    }
    for (int gate = 0; gate < kGates; ++gate) {
      if (b.d_x[gate] != nullptr)
        run_narrow_row(s.dtype, d_x[gate], s.columns, at(s.dtype, b.d_x[gate], t * s.stride));
    }
  }
  if (b.d_h0 != nullptr) run_narrow_row(s.dtype, d, s.columns, b.d_h0);
}

void run_sweep_linear(const LinearSweep& s, float* before) {
  core::with_linear_cell(s.cell, [&](auto cell) { advance_sweep<cell()>(s, before); });
}

void run_sweep_linear_back(const LinearSweepBack& b) {
  core::with_linear_cell(b.of.cell, [&](auto cell) { sweep_back<cell()>(b); });
}

// ---- dense cells: rows in blocks of kSweepColumns units ----

template <Cell kCell>
void dense_advance(const DenseStep& s) {
  constexpr int kGates = formulas::gates_of(kCell), kStates = formulas::states_of(kCell);
  const std::int64_t width = padded(s.hidden);
  HWY_ALIGN float x[kGates][kSweepColumns];
  for (std::int64_t first = 0; first < s.hidden; first += kSweepColumns) {
    const std::int64_t columns = std::min(kSweepColumns, s.hidden - first);
    for (int gate = 0; gate < kGates; ++gate) {
      run_widen_row(s.dtype, at(s.dtype, s.x, gate * s.hidden + first), columns, x[gate]);
    }
    for (std::int64_t i = 0; i < padded(columns); i += kLanes) {
      F gates[kGates], sums[kGates], states[kStates];
      for (int gate = 0; gate < kGates; ++gate) {
        gates[gate] = load(x[gate] + i);
        sums[gate] = load(s.sums + gate * width + first + i);
      }
      for (int k = 0; k < kStates; ++k) states[k] = load(s.states[k] + first + i);
      formulas::advance_cell<kCell, Math>(gates, sums, states);
      for (int k = 0; k < kStates; ++k) store(states[k], s.states[k] + first + i);
    }
    if (s.h != nullptr) run_narrow_row(s.dtype, s.states[0] + first, columns, at(s.dtype, s.h, first));
  }
}

template <Cell kCell>
void dense_back(const DenseStepBack& s) {
  constexpr int kGates = formulas::gates_of(kCell), kStates = formulas::states_of(kCell);
  const std::int64_t width = padded(s.hidden);
  HWY_ALIGN float x[kGates][kSweepColumns], dh[kSweepColumns];
  for (std::int64_t first = 0; first < s.hidden; first += kSweepColumns) {
    const std::int64_t columns = std::min(kSweepColumns, s.hidden - first);
    for (int gate = 0; gate < kGates; ++gate) {
      run_widen_row(s.dtype, at(s.dtype, s.x, gate * s.hidden + first), columns, x[gate]);
    }
    run_widen_row(s.dtype, at(s.dtype, s.dh, first), columns, dh);
    for (std::int64_t i = 0; i < padded(columns); i += kLanes) {
      F gates[kGates], sums[kGates], states[kStates], d_states[kStates], d_x[kGates], d_sums[kGates];
      for (int gate = 0; gate < kGates; ++gate) {
        gates[gate] = load(x[gate] + i);
        sums[gate] = load(s.sums + gate * width + first + i);
      }
      for (int k = 0; k < kStates; ++k) {
        states[k] = load(s.before[k] + first + i);
        d_states[k] = load(s.d_states[k] + first + i);
      }
      d_states[0] = d_states[0] + load(dh + i);
      formulas::cell_gradient<kCell, Math>(gates, sums, states, d_states, d_x, d_sums);
      for (int k = 0; k < kStates; ++k) store(d_states[k], s.d_states[k] + first + i);
      for (int gate = 0; gate < kGates; ++gate) {
        store(d_x[gate], x[gate] + i);
        store(d_sums[gate], s.d_sums + gate * width + first + i);
      }
    }
    for (int gate = 0; gate < kGates; ++gate) {
      const std::int64_t place = gate * s.hidden + first;
      if (s.d_x != nullptr) run_narrow_row(s.dtype, x[gate], columns, at(s.dtype, s.d_x, place));
      if (s.d_rh != nullptr)
        run_narrow_row(s.dtype, s.d_sums + gate * width + first, columns, at(s.dtype, s.d_rh, place));
    }
  }
}

void run_dense_step(const DenseStep& s) {
  core::with_dense_cell(s.cell, [&](auto cell) { dense_advance<cell()>(s); });
}

void run_dense_step_back(const DenseStepBack& s) {
  core::with_dense_cell(s.cell, [&](auto cell) { dense_back<cell()>(s); });
}

}  // namespace HWY_NAMESPACE
}  // namespace host
}  // namespace exphil
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace exphil::host {

HWY_EXPORT(run_sweep_linear);
HWY_EXPORT(run_sweep_linear_back);
HWY_EXPORT(run_dense_step);
HWY_EXPORT(run_dense_step_back);

void sweep_linear(const LinearSweep& sweep) {
  HWY_DYNAMIC_DISPATCH(run_sweep_linear)(sweep, nullptr);
}

void states_before(const LinearSweep& sweep, const float* h, float* before) {
  if (h == nullptr) return HWY_DYNAMIC_DISPATCH(run_sweep_linear)(sweep, before);
  const std::int64_t width = padded(sweep.columns);
  if (sweep.steps > 0) std::fill_n(before, width, 0.0f);
  if (sweep.steps > 0 && sweep.h0 != nullptr) widen_row(sweep.dtype, sweep.h0, sweep.columns, before);
  for (std::int64_t t = 1; t < sweep.steps; ++t) {
    widen_row(core::Dtype::f32, h + (t - 1) * sweep.stride, sweep.columns, before + t * width);
  }
}

void sweep_linear_back(const LinearSweepBack& sweep) {
  HWY_DYNAMIC_DISPATCH(run_sweep_linear_back)(sweep);
}

void dense_step(const DenseStep& step) {
  HWY_DYNAMIC_DISPATCH(run_dense_step)(step);
}

void dense_step_back(const DenseStepBack& step) {
  HWY_DYNAMIC_DISPATCH(run_dense_step_back)(step);
}

}  // namespace exphil::host
#endif  // HWY_ONCE
