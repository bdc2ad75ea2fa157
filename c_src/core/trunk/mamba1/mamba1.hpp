// Mamba (Gu and Dao 2023) as a trunk: its sizes, the network that they make, and the loaders of its namings
// (state_spaces.cpp, edifice.cpp), which say which tensor fills which weight.
//
//   a layer: norm; in_proj to x, z; conv of x, silu; x_proj to dt's low rank, B, C; dt_proj; the selective
//   scan, gated by silu(z); out_proj; residual
//   state parts: ssm {d_inner, d_state}, conv {d_inner, d_conv - 1}
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/policy/config.hpp"
#include "core/trunk/builder.hpp"
#include "core/trunk/loading.hpp"
#include "core/trunk/mamba1/spec.hpp"

namespace exphil::core::mamba1 {

// A checkpoint beyond these limits is refused; the limit of d_state is kMaxState, as for every scan.
inline constexpr std::int64_t kMaxConvTaps = 16;

// Which of the weights exist that not every Mamba has.
struct Optional {
  bool norm_bias = false, in_proj_bias = false, conv_bias = false, x_proj_bias = false, out_proj_bias = false;
  bool a_log = true;  // else A = -(1..d_state) in each channel
  bool d = true;      // else no skip
  bool norm_f_bias = false;
  bool head = true;  // else, without head_widths, the outputs are the hidden state: d_output == d_model
};

struct Config {
  std::int64_t d_input = 0, d_output = 0;
  std::int64_t d_model = 0, d_inner = 0, n_layer = 0;
  std::int64_t d_state = 0, d_conv = 0, dt_rank = 0;
  float norm_epsilon = 1e-5f;
  Spec spec;
  Optional has;
  std::vector<OutputGroup> groups;
  // Of two-layer heads, which read the same final hidden state: one for each group. None: one linear map.
  std::vector<std::int64_t> head_widths;
};

// The weights of a layer, row-major; kNone where absent.
struct LayerWeights {
  WeightId norm, norm_bias;          // {d_model}; a bias for LayerNorm only
  WeightId in_proj, in_proj_bias;    // {2 d_inner, d_model}: x rows, then z rows
  WeightId conv, conv_bias;          // {d_inner, d_conv}, oldest tap first
  WeightId x_proj, x_proj_bias;      // {dt_rank + 2 d_state, d_inner}: dt, B, C rows
  WeightId dt_proj, dt_proj_bias;    // {d_inner, dt_rank}
  WeightId a_log, a;                 // {d_inner, d_state}
  WeightId d;                        // {d_inner}
  WeightId out_proj, out_proj_bias;  // {d_model, d_inner}
};

struct Weights {
  WeightId input_proj = kNone, input_proj_bias = kNone;  // {d_model, d_input}
  std::vector<LayerWeights> layers;
  WeightId norm_f = kNone, norm_f_bias = kNone;  // {d_model}
  NetworkBuilder::Head end;
};

// The policy without numbers and parameters.
struct Description {
  PolicyWeights policy;
  Weights weights;
};
Description describe(const Config& config);

// Zeros, and A where it is no tensor.
PolicyValues<float> first_values(const Description& description);

// Reads the parameters, whose names the loader of a naming has listed. Throws what read_parameters throws.
PolicyWeights read(const Checkpoint& file, CheckpointReader& reader, Description description);

PolicyWeights load_state_spaces(const Checkpoint& file, const PolicyLoadOptions& options);
PolicyWeights load_edifice(const Checkpoint& file, const PolicyLoadOptions& options);

// The tensors of these weights by state-spaces' names, in the order of a forward pass.
std::vector<PolicyParameter> state_spaces_parameters(const Config& config, const Weights& weights,
                                                     const std::string& prefix);

// initial.cpp. Own sizes: d_state (16), d_conv (4), expand (2), dt_rank (d_model / 16, rounded up), the
// defaults of state-spaces/mamba, mamba_ssm/modules/mamba_simple.py. The tensors have its names.
std::vector<InitialTensor> initial_weights(const std::string& trunk, SizeReader sizes,
                                           const Initializer& draw);

Trunk trunk();

}  // namespace exphil::core::mamba1
