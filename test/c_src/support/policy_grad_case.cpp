#include "support/policy_grad_case.hpp"

#include "core/policy/reference.hpp"
#include "support/gated_policy.hpp"
#include "support/mamba.hpp"
#include "support/numbers.hpp"
#include "support/policy.hpp"

namespace exphil::test {

namespace {

using core::PolicyWeights;
using Floats = std::vector<float>;

std::shared_ptr<PolicyWeights> state_spaces(bool projection_bias, bool conv_bias, std::int64_t taps,
                                            std::uint64_t seed) {
  PolicySpec spec;
  spec.projection_bias = projection_bias, spec.conv_bias = conv_bias, spec.d_conv = taps, spec.seed = seed;
  return std::make_shared<PolicyWeights>(*make_policy(spec));
}

// What Edifice's dialects have beyond state-spaces'. dt lies on both sides of both bounds and inside.
std::shared_ptr<PolicyWeights> edifice(core::mamba1::InputDt input_dt, std::int64_t chunk_size,
                                       bool input_projection, bool heads, std::uint64_t seed) {
  MambaWeights w = mamba_weights(*state_spaces(true, true, 4, seed));
  Random random(seed + 100);
  core::mamba1::Config& c = w.config;
  const auto size = [](std::int64_t count) { return static_cast<std::size_t>(count); };
  const auto vector = [&](std::int64_t count) { return random.vector(size(count), -0.5f, 0.5f); };
  c.spec.dialect =
      chunk_size > 0 ? core::mamba1::Dialect::edifice_mamba_ssd : core::mamba1::Dialect::edifice_mamba;
  c.spec.norm = core::NormKind::layer;
  c.spec.final_norm = false;
  c.spec.input_dt = input_dt;
  c.spec.dt_min = 0.05f, c.spec.dt_max = 0.3f;
  c.spec.chunk_size = chunk_size, c.spec.window = chunk_size;
  w.norm_f.clear();
  for (MambaLayer& layer : w.layers) {
    layer.norm_bias = vector(c.d_model);
    layer.x_proj_bias = vector(c.dt_rank + 2 * c.d_state);
    layer.a_log.clear(), layer.d.clear();
  }
  if (!input_projection) {
    c.d_input = c.d_model, c.spec.input_projection = false;
    w.input_proj.clear(), w.input_proj_bias.clear();
  }
  w.head.clear(), w.head_bias.clear();
  c.d_output = heads ? 5 : c.d_model;
  std::int64_t first = 0;
  for (const std::int64_t count : {2, 3}) {
    if (!heads) break;
    MambaHead head;
    head.hidden = vector(4 * c.d_model), head.hidden_bias = vector(4);
    head.out = vector(count * 4), head.out_bias = vector(count);
    w.heads.push_back(head);
    c.groups.push_back({"group" + std::to_string(first), first, count});
    first += count;
  }
  return std::make_shared<PolicyWeights>(described(w));
}

}  // namespace

std::vector<NamedPolicy> small_policies() {
  return {{"state-spaces", state_spaces(false, true, 4, 1)},
          {"state-spaces with biases", state_spaces(true, false, 2, 2)},
          {"no convolution", state_spaces(false, true, 1, 3)},
          {"mean dt, heads", edifice(core::mamba1::InputDt::mean, 0, true, true, 4)},
          {"dt of each channel, no input projection",
           edifice(core::mamba1::InputDt::per_channel, 0, false, false, 5)},
          {"mean dt, decayed inputs", edifice(core::mamba1::InputDt::mean, 16, true, false, 6)}};
}

core::PolicySequences PolicyGradCase::sequences() const {
  core::PolicySequences s;
  s.batch = batch, s.seq = seq, s.frames = frames.data();
  if (!states.empty()) s.states = states.data();
  return s;
}

PolicyGradCase policy_grad_case(const core::PolicyConfig& config, std::int64_t batch, std::int64_t seq,
                                bool with_state, std::uint64_t seed) {
  Random random(seed);
  const auto vector = [&](std::int64_t count) {
    return random.vector(static_cast<std::size_t>(count), -1.0f, 1.0f);
  };
  PolicyGradCase c;
  c.batch = batch, c.seq = seq;
  c.frames = vector(batch * seq * config.d_input);
  const Floats d_outs = vector(batch * seq * config.d_output);
  c.d_outs.assign(d_outs.begin(), d_outs.end());
  if (with_state) c.states = vector(batch * config.state_floats());
  return c;
}

double reference_loss(const core::PolicyWeights& weights, const PolicyGradCase& c) {
  const core::PolicyConfig& config = weights.config;
  const core::PolicySequences s = c.sequences();
  std::vector<double> out(static_cast<std::size_t>(config.d_output));
  double loss = 0;
  const double* d_out = c.d_outs.data();
  for (std::int64_t b = 0; b < s.batch; ++b) {
    core::PolicyReferenceState state(config);
    state.length = s.length(config);
    const std::int64_t floats = config.state_floats();
    if (s.states != nullptr) state.values.assign(s.states + b * floats, s.states + (b + 1) * floats);
    for (std::int64_t t = 0; t < s.seq; ++t) {
      core::policy_reference_step(weights, state, s.frames + (b * s.seq + t) * config.d_input, out.data());
      for (double value : out) loss += value * *d_out++;
    }
  }
  return loss;
}

std::vector<NamedPolicy> every_small_policy() {
  std::vector<NamedPolicy> all = small_policies();
  for (NamedPolicy& policy : small_gated_policies()) all.push_back(std::move(policy));
  return all;
}

}  // namespace exphil::test
