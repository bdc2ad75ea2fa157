// The gated cells of cuda/policy/gradient_pass.hpp, forward and backward. Of a recurrent cell one walk also
// computes the products of its state (cuda/recurrent).
#include "cuda/policy/gradient_order.hpp"
#include "cuda/policy/gradient_pass.hpp"
#include "cuda/recurrent/walk.hpp"

namespace exphil::cuda {

using recurrent::ConstRows;
using recurrent::Rows;

namespace {

ConstRows as_read(const Rows& rows) {
  return {rows.at, rows.row};
}

// Row `state` of the state part of each sequence; null where `states` is.
Rows state_rows(float* states, const core::GatedCell& p, int state) {
  return {advanced(states, state * p.out.size), formulas::states_of(p.cell) * p.out.size};
}

}  // namespace

recurrent::RecurrentWeights GradientPass::recurrent_weights(const core::GatedCell& p) const {
  recurrent::RecurrentWeights w{};
  w.u_unit = p.out.size, w.u_k = 1;
  for (int g = 0; formulas::recurrent(p.cell) && g < formulas::gates_of(p.cell); ++g) {
    const RecurrentProduct made = recurrent_product(*phases_, p.h[static_cast<std::size_t>(g)]);
    w.u[g] = weight(made.product->weight) + made.row * p.out.size;
  }
  return w;
}

float* GradientPass::states_before(const core::GatedCell& p, int state) const {
  if (!formulas::recurrent(p.cell) || state > 0) return m_.blocks[block_].cell_states[phase_].data;
  return in(recurrent_product(*phases_, p.h[0]).product->in);
}

void GradientPass::forward(const core::GatedCell& p) {
  recurrent::WalkArguments a{};
  a.weights = recurrent_weights(p);
  for (int i = 0; i < formulas::gates_of(p.cell); ++i) {
    const auto g = static_cast<std::size_t>(i);
    a.x[i] = in(p.x[g]);
    if (!formulas::recurrent(p.cell)) continue;
    const RecurrentProduct made = recurrent_product(*phases_, p.h[g]);
    a.bias[i] = advanced(weight(made.product->bias), made.row);
    if (m_.shape.gradient) a.h[i] = in(p.h[g]);
  }
  const auto id = static_cast<std::size_t>(p.state);
  for (int s = 0; s < formulas::states_of(p.cell); ++s) {
    const float* const initial = values_.initial_in(weights_, p.state);
    a.initial[s] = m_.shape.with_state  ? as_read(state_rows(m_.states[id], p, s))
                   : initial != nullptr ? ConstRows{initial + s * p.out.size, 0}
                                        : ConstRows{};
    a.final[s] = state_rows(m_.final_states[id], p, s);
    if (m_.shape.gradient) a.before[s] = states_before(p, s);
  }
  a.out = out(p.out);
  a.sequences = m_.shape.sequences, a.seq = m_.shape.seq;
  a.sums_row = p.out.size, a.units = static_cast<int>(p.out.size);
  enqueue_walk(context_, stream_, p.cell, a, {}, Begin::beside);
}

void GradientPass::back(const core::GatedCell& p) {
  run_inputs();
  recurrent::WalkBackArguments a{};
  a.weights = recurrent_weights(p);
  a.d_out = dense_given(p.out);
  for (int i = 0; i < formulas::gates_of(p.cell); ++i) {
    const auto g = static_cast<std::size_t>(i);
    a.x[i] = in(p.x[g]), a.d_x[i] = stored(p.x[g]);
    if (!formulas::recurrent(p.cell)) continue;
    a.h[i] = in(p.h[g]), a.d_h[i] = stored(p.h[g]);
  }
  for (int s = 0; s < formulas::states_of(p.cell); ++s) {
    a.before[s] = states_before(p, s);
    a.d_initial[s] = state_rows(m_.d_states[static_cast<std::size_t>(p.state)], p, s);
  }
  a.sequences = m_.shape.sequences, a.seq = m_.shape.seq;
  a.sums_row = p.out.size, a.units = static_cast<int>(p.out.size);
  enqueue_walk_back(context_, stream_, p.cell, a);
  settle();
}

}  // namespace exphil::cuda
