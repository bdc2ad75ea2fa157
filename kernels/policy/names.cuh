// The quantities of Mamba-1 by their names, found in a network's lists: for the kernels that still name them.
// It goes when none does.
#pragma once

#include "kernels/policy/network.cuh"

namespace exphil {
namespace policy {

struct Form {
  bool layer_norm = false;       // norms divide by the standard deviation, not by the root mean square
  bool final_norm = true;        // before the heads
  bool projection_bias = false;  // of x_proj
  bool clips_dt = false;
  bool mean_dt = false;       // inputs are scaled by the mean of dt over the channels
  bool decays_input = false;  // windows may decay inputs by their own step (RowArguments::decays_input)
  bool carried_decays_input = false;  // carried states do
};

struct Dims {
  int d_model = 0, d_inner = 0, d_state = 0, d_conv = 0, dt_rank = 0, d_input = 0, d_output = 0, n_layer = 0;
  int d_hidden = 0;  // hidden values of all two-layer heads together; 0: the head is one linear map
  Form form;
  Stored stored = Stored::f32;
  unsigned dt_min = 0, dt_max = 0;  // bits

  // The output of a product of the layer that is `vector`.
  static constexpr const Product& product_to(const Network& n, int vector) {
    for (int p = 0; p < kMostPhases; ++p) {
      for (int i = 0; i < n.products[p].outputs; ++i) {
        if (n.products[p].out[i].vector == vector) return n.products[p];
      }
    }
    return n.products[0];
  }

  constexpr Dims() = default;
  constexpr explicit Dims(const Network& n) {
    const Scan& scan = n.scans[0];
    const Product& dt = product_to(n, scan.dt);
    const Product& first = n.products[n.output.phases[0].index];
    d_model = n.values(n.hidden), d_inner = n.values(scan.x), d_state = n.values(scan.b);
    d_conv = n.convolutions[0].taps, dt_rank = n.values(dt.in);
    d_input = n.values(n.frame), d_output = n.values(n.outs), n_layer = n.layers;
    d_hidden = n.output.count > 1 ? n.values(first.out[0].vector) : 0;
    form.layer_norm = n.products[n.layer.phases[0].index].norm == Norm::layer;
    form.final_norm = first.norm != Norm::none;
    form.projection_bias = product_to(n, scan.b).biased;
    form.clips_dt = dt.out[0].clips;
    form.mean_dt = scan.input_dt != kNoVector;
    form.decays_input = scan.decays_input, form.carried_decays_input = scan.carried_decays_input;
    dt_min = dt.out[0].lowest, dt_max = dt.out[0].highest;
    stored = n.stored;
  }

  constexpr int weight_bytes() const { return stored == Stored::f32 ? 4 : stored == Stored::int8 ? 1 : 2; }
  constexpr bool row_scales() const { return stored == Stored::int8; }
  constexpr bool centres() const { return form.layer_norm && stored != Stored::f32; }

  constexpr int model() const { return round_up(d_model, kSegment); }
  constexpr int inner() const { return round_up(d_inner, kSegment); }
  constexpr int input() const { return round_up(d_input, kSegment); }
  constexpr int output() const { return d_output; }
  constexpr int layers() const { return n_layer; }
  constexpr int hidden() const { return round_up(d_hidden, kSegment); }
  // The values that the last product reads.
  constexpr int head_depth() const { return d_hidden > 0 ? hidden() : model(); }

  constexpr int lanes() const { return Lanes(d_state).lanes; }
  constexpr int per_lane() const { return Lanes(d_state).each; }
  constexpr int state() const { return Lanes(d_state).size(); }

  // One row of x_proj's output: dt (rank()), B (state()), C (state()).
  constexpr int rank() const { return round_up(dt_rank, 4); }
  constexpr int projection() const { return rank() + 2 * state(); }

  constexpr int taps() const { return d_conv; }
  constexpr int history() const { return d_conv - 1; }  // past inputs of the causal convolution

  // One agent's state, in floats: for each layer ssm {inner, state}, then conv {history, inner}, oldest
  // first.
  constexpr int ssm_floats() const { return inner() * state(); }
  constexpr int conv_floats() const { return history() * inner(); }
  constexpr int layer_state_floats() const { return ssm_floats() + conv_floats(); }
  constexpr long long state_floats() const { return static_cast<long long>(layers()) * layer_state_floats(); }
};

}  // namespace policy
}  // namespace exphil
