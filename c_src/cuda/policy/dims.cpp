// See model_dims.hpp.
#include "cuda/policy/dims.hpp"

#include <algorithm>

#include "core/error.hpp"

namespace exphil::cuda {
namespace {

int round_up(std::int64_t value, int multiple) {
  return static_cast<int>((value + multiple - 1) / multiple * multiple);
}
int divide_up(int value, int by) {
  return (value + by - 1) / by;
}
int power_of_two_above(int value) {
  int power = 1;
  while (power < value) power *= 2;
  return power;
}

// Beyond these the 32-bit offsets inside one layer's weights could overflow.
constexpr std::int64_t kMostDim = 1 << 14;
constexpr std::int64_t kMostState = 1024;

void require_at_most(std::int64_t value, std::int64_t limit, const char* name) {
  if (value > limit) {
    core::fail(core::ErrorKind::limit_exceeded, "", "the CUDA backend takes policies with ", name, " up to ",
               limit, ", this one has ", value);
  }
}

std::string define(const char* name, std::int64_t value) {
  return core::message(name, "=", value);
}

}  // namespace

PolicyDims::PolicyDims(const core::PolicyConfig& c) : config(c) {
  require_at_most(c.d_model, kMostDim, "d_model");
  require_at_most(c.d_inner, kMostDim, "d_inner");
  require_at_most(c.d_input, kMostDim, "d_input");
  require_at_most(c.d_output, kMostDim, "d_output");
  require_at_most(c.dt_rank, 1024, "dt_rank");
  require_at_most(c.d_state, kMostState, "d_state");
  require_at_most(c.d_conv, 16, "d_conv");
  require_at_most(c.n_layer, 256, "n_layer");
  model = round_up(c.d_model, kSegment);
  inner = round_up(c.d_inner, kSegment);
  input = round_up(c.d_input, kSegment);
  output = static_cast<int>(c.d_output);
  layers = static_cast<int>(c.n_layer);
  lanes = std::min(32, power_of_two_above(divide_up(static_cast<int>(c.d_state), 4)));
  per_lane = round_up(divide_up(static_cast<int>(c.d_state), lanes), 4);
  state = lanes * per_lane;
  rank = round_up(c.dt_rank, 4);
  projection = rank + 2 * state;
  taps = static_cast<int>(c.d_conv);
  history = taps - 1;
}

std::vector<std::string> PolicyDims::defines() const {
  return {define("D_MODEL", config.d_model),   define("D_INNER", config.d_inner),
          define("D_STATE", config.d_state),   define("D_CONV", config.d_conv),
          define("DT_RANK", config.dt_rank),   define("D_INPUT", config.d_input),
          define("D_OUTPUT", config.d_output), define("N_LAYER", config.n_layer)};
}

int product_columns(int outputs) {
  return round_up(outputs, 64);
}

int few_rows(int k) {
  int rows = 16;
  while (rows > 0 && 2 * k * rows * 4 > 40 * 1024) rows /= 2;
  return rows;
}

std::vector<std::string> TeamShape::defines(const PolicyDims& dims) const {
  std::vector<std::string> all = dims.defines();
  all.insert(all.end(), {define("TEAM", team), define("THREADS", threads), define("AGENTS", agents),
                         define("CLUSTER", cluster ? 1 : 0), define("STAGED", staged ? 1 : 0)});
  return all;
}

TeamLayout::TeamLayout(const PolicyDims& dims, int team) {
  own_segments = divide_up(dims.inner / kSegment, team);
  own = own_segments * kSegment;
  rows = divide_up(dims.model, team);
  heads = divide_up(dims.output, team);

  input_bias = rows * dims.input;
  input_floats = input_bias + round_up(rows, 4);
  head_bias = heads * dims.model;
  head_floats = head_bias + round_up(heads, 4);

  in_bias = 0;
  conv = in_bias + 2 * own;
  conv_bias = conv + dims.taps * own;
  x_proj = conv_bias + own;
  dt_proj = x_proj + dims.projection * own;
  dt_bias = dt_proj + dims.rank * own;
  a = dt_bias + own;
  d = a + own * dims.state;
  out_proj = d + own;
  out_bias = out_proj + rows * dims.inner;
  layer_floats = out_bias + round_up(rows, 4);
  in_proj_floats = 2 * own * dims.model;

  head_section = input_floats;
  layers_section = head_section + head_floats;
  staged_floats = layers_section + std::int64_t{dims.layers} * layer_floats;
  in_proj_section = staged_floats;
  slice_floats = in_proj_section + std::int64_t{dims.layers} * in_proj_floats;
}

std::int64_t board_floats(const PolicyDims& dims, const TeamShape& shape) {
  return std::int64_t{shape.agents} *
         (dims.model + dims.inner + std::int64_t{dims.inner / kSegment} * dims.projection);
}

std::int64_t shared_bytes(const PolicyDims& dims, const TeamShape& shape) {
  const TeamLayout layout(dims, shape.team);
  const std::int64_t agents = shape.agents, model_segments = dims.model / kSegment;
  const std::int64_t most_tasks = std::max(
      {std::int64_t{layout.rows} * (dims.input / kSegment), 2 * layout.own * model_segments,
       std::int64_t{layout.rows} * (dims.inner / kSegment), std::int64_t{layout.heads} * model_segments});
  const std::int64_t floats =
      board_floats(dims, shape) +
      agents * (dims.input + 3 * layout.own + dims.projection + most_tasks + layout.rows + 1);
  const std::int64_t pointers = agents + 2 + dims.layers;
  const std::int64_t activations = ((floats * 4 + 7) / 8 * 8 + pointers * 8 + 15) / 16 * 16;
  return (shape.staged ? layout.staged_floats * 4 : 0) + activations;
}

}  // namespace exphil::cuda
