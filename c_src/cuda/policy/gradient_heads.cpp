// The recurrences over heads and the gates of cuda/policy/gradient_pass.hpp, forward and backward, and the
// launches of their kernels.
#include <algorithm>

#include "cuda/divide_up.hpp"
#include "cuda/jit/launch.hpp"
#include "cuda/policy/gradient_order.hpp"
#include "cuda/policy/gradient_pass.hpp"
#include "kernels/policy/gradient_heads.cuh"

namespace exphil::cuda {

using core::Span;

namespace {

policy::HeadTile tile_of(const core::HeadRecurrence& heads) {
  return policy::HeadTile(static_cast<int>(heads.keys()));
}

// Or the rule where there are none.
std::int64_t ranks_of(const core::HeadRecurrence& heads) {
  if (heads.rule == formulas::HeadRule::trapezoid) return heads.ranks;
  return heads.rule == formulas::HeadRule::delta ? policy::kDeltaRule : policy::kLinearRule;
}

}  // namespace

// ---- launches ----

std::int64_t head_tiles(const core::HeadRecurrence& heads) {
  return tile_of(heads).tiles(static_cast<int>(heads.channels()));
}

std::int64_t head_state_floats(const core::HeadRecurrence& heads, std::int64_t sequences, std::int64_t seq) {
  const std::int64_t segment = policy::kHeadSegment;
  const std::int64_t slots = divide_up(seq, segment) + std::min(seq, segment);
  return sequences * heads.heads() * head_tiles(heads) * slots * tile_of(heads).floats() *
         policy::kHeadWalkThreads;
}

KernelSpec gradient_heads_spec(std::int64_t keys, std::int64_t ranks, const char* entry) {
  return {"policy/gradient_heads.cu", entry, {define("KEYS", keys), define("RANKS", ranks)}};
}

KernelSpec gradient_gate_spec(const char* entry) {
  return {"policy/gradient_gate.cu", entry, {}};
}

std::vector<KernelSpec> gradient_head_kernels(std::int64_t keys, std::int64_t ranks) {
  return {gradient_heads_spec(keys, ranks, "policy_gradient_heads"),
          gradient_heads_spec(keys, ranks, "policy_gradient_heads_back"),
          gradient_gate_spec("policy_gradient_gate"),
          gradient_gate_spec("policy_gradient_gate_back"),
          gradient_gate_spec("policy_gradient_sigmoid"),
          gradient_gate_spec("policy_gradient_sigmoid_back"),
          gradient_gate_spec("policy_gradient_means"),
          gradient_gate_spec("policy_gradient_means_back")};
}

void GradientKernels::load_heads(const core::Network& network) {
  for (const core::Phase* phase : core::phases_of(network)) {
    if (std::holds_alternative<core::Gate>(*phase)) gate_ = gates("policy_gradient_gate");
    if (std::holds_alternative<core::Sigmoid>(*phase)) sigmoid_ = gates("policy_gradient_sigmoid");
    const auto* const p = std::get_if<core::HeadRecurrence>(phase);
    if (p == nullptr) continue;
    heads_[{p->keys(), ranks_of(*p)}] = {};
    if (p->rule == formulas::HeadRule::delta) means_ = gates("policy_gradient_means");  // its decays
    if (ranks_of(*p) > 0) load_trapezoid();
  }
  KernelCache& cache = context_.kernels();
  for (auto& [sizes, pair] : heads_) {
    pair = {cache.get(gradient_heads_spec(sizes.first, sizes.second, "policy_gradient_heads")),
            cache.get(gradient_heads_spec(sizes.first, sizes.second, "policy_gradient_heads_back"))};
  }
}

GradientKernels::Pair GradientKernels::gates(const std::string& entry) const {
  KernelCache& cache = context_.kernels();
  return {cache.get(gradient_gate_spec(entry.c_str())),
          cache.get(gradient_gate_spec((entry + "_back").c_str()))};
}

namespace {

Dim3 heads_grid(std::int64_t keys, const policy::GradientHeadsArguments& a) {
  return gradient_grid(a.sequences * a.heads * policy::HeadTile(static_cast<int>(keys)).tiles(a.channels));
}

std::int64_t gate_blocks(std::int64_t values) {
  return divide_up(values, policy::kGradientThreads);
}

}  // namespace

void GradientKernels::heads(CUstream stream, const core::HeadRecurrence& p,
                            const policy::GradientHeadsArguments& a) const {
  launch(context_, heads_.at({p.keys(), ranks_of(p)}).forward, heads_grid(p.keys(), a),
         {policy::kHeadWalkThreads}, 0, stream, a);
}

void GradientKernels::heads_back(CUstream stream, const core::HeadRecurrence& p,
                                 const policy::GradientHeadsArguments& a) const {
  launch(context_, heads_.at({p.keys(), ranks_of(p)}).back, heads_grid(p.keys(), a),
         {policy::kHeadWalkThreads}, 0, stream, a);
}

void GradientKernels::gate(CUstream stream, const policy::GradientGateArguments& a) const {
  enqueue(Pass::forward, stream, gate_.forward, gate_blocks(a.count), a);
}

void GradientKernels::gate_back(CUstream stream, const policy::GradientGateArguments& a) const {
  enqueue(Pass::back, stream, gate_.back, gate_blocks(a.count), a);
}

void GradientKernels::sigmoid(CUstream stream, const policy::GradientGateArguments& a, bool back) const {
  enqueue(back ? Pass::back : Pass::forward, stream, back ? sigmoid_.back : sigmoid_.forward,
          gate_blocks(a.count), a);
}

void GradientKernels::means(CUstream stream, const policy::GradientGateArguments& a, bool back) const {
  enqueue(back ? Pass::back : Pass::forward, stream, back ? means_.back : means_.forward,
          gate_blocks(back ? a.count : a.count / a.part), a);
}

// ---- gates ----

policy::GradientGateArguments GradientPass::gate_arguments(const core::Gate& p) const {
  policy::GradientGateArguments a{};
  a.x = in(p.in), a.gate = in(p.gate);
  a.count = m_.shape.rows() * p.in.size;
  return a;
}

void GradientPass::forward(const core::Gate& p) {
  policy::GradientGateArguments a = gate_arguments(p);
  a.out = out(p.out);
  kernels_.gate(stream_, a);
}

void GradientPass::back(const core::Gate& p) {
  run_inputs();
  policy::GradientGateArguments a = gate_arguments(p);
  a.d_out = dense_given(p.out);
  a.dx = stored(p.in), a.d_gate = stored(p.gate);
  kernels_.gate_back(stream_, a);
  settle();
}

// ---- sigmoids and means ----

policy::GradientGateArguments GradientPass::elements(const Span& from, const Span& to) const {
  policy::GradientGateArguments a{};
  a.x = in(from), a.out = out(to);
  a.count = m_.shape.rows() * from.size, a.part = static_cast<int>(from.size / to.size);
  return a;
}

void GradientPass::forward(const core::Sigmoid& p) {
  kernels_.sigmoid(stream_, elements(p.in, p.out), false);
}

void GradientPass::back(const core::Sigmoid& p) {
  run_inputs();
  policy::GradientGateArguments a = elements(p.in, p.out);
  a.d_out = dense_given(p.out), a.dx = stored(p.in);
  kernels_.sigmoid(stream_, a, true);
  settle();
}

// That of a softplus's output is taken by the softplus's launch.
void GradientPass::forward(const core::Mean& p) {
  if (writer_of<core::Softplus>(*phases_, p.in) == nullptr)
    kernels_.means(stream_, elements(p.in, p.out), false);
}

void GradientPass::back(const core::Mean& p) {
  if (writer_of<core::Softplus>(*phases_, p.in) != nullptr) return;
  run_inputs();
  policy::GradientGateArguments a = elements(p.in, p.out);
  a.d_out = dense_given(p.out), a.dx = stored(p.in);
  kernels_.means(stream_, a, true);
  settle();
}

// ---- recurrences over heads ----

policy::GradientHeadsArguments GradientPass::heads(const core::HeadRecurrence& p) const {
  policy::GradientHeadsArguments a{};
  const auto state = static_cast<std::size_t>(p.state);
  a.value = in(p.value), a.dt = in(p.rate), a.key = in(p.key), a.query = in(p.query);
  a.a = weight(p.a), a.d = weight(p.d);
  a.initial = m_.states[state], a.final = m_.final_states[state], a.out = out(p.out);
  a.states = as_pointer<float>(m_.scan_scratch);
  a.sequences = m_.shape.sequences, a.seq = m_.shape.seq;
  a.heads = static_cast<int>(p.heads()), a.groups = static_cast<int>(p.groups);
  a.channels = static_cast<int>(p.channels()), a.skips = static_cast<int>(p.skips);
  if (p.rule == formulas::HeadRule::linear) return a;
  a.decay = in(p.decay);
  if (p.rule == formulas::HeadRule::delta) return a;
  a.value_before = in(p.value_before), a.key_before = in(p.key_before);
  a.rate_before = in(p.rate_before), a.scale = weight(p.scale);
  return a;
}

void GradientPass::forward(const core::HeadRecurrence& p) {
  kernels_.heads(stream_, p, heads(p));
}

void GradientPass::back(const core::HeadRecurrence& p) {
  run_inputs();
  const std::int64_t tiles = head_tiles(p), count = m_.shape.sequences;
  policy::GradientHeadsArguments a = heads(p);
  a.d_out = dense_given(p.out);
  a.d_initial = m_.d_states[static_cast<std::size_t>(p.state)];
  a.d_value = stored(p.value);
  if (p.a != core::kNone) a.a_parts = negative_exp_parts(p.a, count * tiles, p.heads());
  const bool of_heads = p.skips == p.heads();
  a.d_parts = sums().into(gradient(p.d), of_heads ? count * tiles : count, p.skips);
  const bool of_channels = p.rule == formulas::HeadRule::delta;
  if (of_channels) a.dt_parts = stored(p.rate);
  if (p.value_before) a.d_value_before = stored(p.value_before);
  if (p.scale != core::kNone) a.scale_parts = sums().into(gradient(p.scale), count, p.ranks * p.value.size);
  // These are needed at once, and no group adds to those of another.
  PartialSums now = sums().rest();
  const auto parts_of = [&](const core::Span& span, std::int64_t parts) { return summed(span, parts, now); };
  if (!of_channels) a.dt_parts = parts_of(p.rate, tiles);
  a.key_parts = parts_of(p.key, tiles * p.heads() / p.groups);
  a.query_parts = parts_of(p.query, tiles * p.heads() / p.groups);
  if (p.rule != formulas::HeadRule::linear) a.decay_parts = parts_of(p.decay, tiles);
  if (p.rule == formulas::HeadRule::trapezoid) {
    a.rate_before_parts = parts_of(p.rate_before, tiles);
    a.key_before_parts = parts_of(p.key_before, tiles);
  }
  kernels_.heads_back(stream_, p, a);
  kernels_.add_parts(stream_, now.sums());
  settle();
}

}  // namespace exphil::cuda
