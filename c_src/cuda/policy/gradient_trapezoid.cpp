// What heads with the trapezoidal rule have beside their recurrence, in cuda/policy/gradient_pass.hpp:
// forward and backward, and their kernels (kernels/policy/gradient_trapezoid.cu).
#include "cuda/policy/gradient_pass.hpp"

namespace exphil::cuda {

KernelSpec gradient_trapezoid_spec(const char* entry) {
  return {"policy/gradient_trapezoid.cu", entry, {}};
}

std::vector<KernelSpec> gradient_trapezoid_kernels() {
  std::vector<KernelSpec> all;
  for (const char* entry :
       {"policy_gradient_coefficients", "policy_gradient_coefficients_back", "policy_gradient_angle",
        "policy_gradient_angle_back", "policy_gradient_rotation", "policy_gradient_rotation_back",
        "policy_gradient_rotation_input_back", "policy_gradient_delay", "policy_gradient_delay_back",
        "policy_gradient_ranks", "policy_gradient_ranks_back"}) {
    all.push_back(gradient_trapezoid_spec(entry));
  }
  return all;
}

void GradientKernels::load_trapezoid() {
  if (!trapezoid_.empty()) return;
  for (const KernelSpec& spec : gradient_trapezoid_kernels()) {
    trapezoid_[spec.entry] = context_.kernels().get(spec);
  }
}

// ---- coefficients ----

policy::GradientCoefficientsArguments GradientPass::coefficients(const core::Trapezoid& p) const {
  policy::GradientCoefficientsArguments a{};
  a.dt = in(p.dt), a.a = in(p.a), a.mix = in(p.mix);
  a.count = m_.shape.rows() * p.dt.size, a.floor = p.floor;
  return a;
}

namespace {

// The three thirds of what a trapezoidal rule writes.
core::Span third(const core::Trapezoid& p, std::int64_t number) {
  return {p.out.vector, p.out.first + number * p.dt.size, p.dt.size};
}

}  // namespace

void GradientPass::forward(const core::Trapezoid& p) {
  policy::GradientCoefficientsArguments a = coefficients(p);
  a.before = out(third(p, 0)), a.now = out(third(p, 1)), a.decay = out(third(p, 2));
  kernels_.trapezoid(stream_, "policy_gradient_coefficients", a.count, a);
}

void GradientPass::back(const core::Trapezoid& p) {
  run_inputs();
  policy::GradientCoefficientsArguments a = coefficients(p);
  a.d_before = dense_given(third(p, 0)), a.d_now = dense_given(third(p, 1));
  a.d_decay = dense_given(third(p, 2));
  a.d_dt = stored(p.dt), a.d_a = stored(p.a), a.d_mix = stored(p.mix);
  kernels_.trapezoid(stream_, "policy_gradient_coefficients_back", a.count, a);
  settle();
}

// ---- angles ----

policy::GradientAngleArguments GradientPass::angles(const core::Angle& p) const {
  policy::GradientAngleArguments a{};
  const auto state = static_cast<std::size_t>(p.state);
  a.rate = in(p.rate), a.dt = in(p.dt), a.turn = out(p.out);
  a.initial = m_.states[state], a.final = m_.final_states[state];
  a.sequences = m_.shape.sequences, a.seq = m_.shape.seq;
  a.heads = static_cast<int>(p.heads()), a.angles = static_cast<int>(p.angles());
  return a;
}

void GradientPass::forward(const core::Angle& p) {
  const policy::GradientAngleArguments a = angles(p);
  kernels_.trapezoid(stream_, "policy_gradient_angle", a.sequences * p.heads() * p.angles(), a);
}

void GradientPass::back(const core::Angle& p) {
  run_inputs();
  policy::GradientAngleArguments a = angles(p);
  a.d_turn = dense_given(p.out), a.d_initial = m_.d_states[static_cast<std::size_t>(p.state)];
  PartialSums now = sums().rest();
  a.rate_parts = summed(p.rate, p.heads(), now), a.dt_parts = summed(p.dt, p.angles(), now);
  kernels_.trapezoid(stream_, "policy_gradient_angle_back", a.sequences * p.heads() * p.angles(), a);
  kernels_.add_parts(stream_, now.sums());
}

// ---- rotations ----

policy::GradientRotationArguments GradientPass::rotation(const core::Rotation& p) const {
  policy::GradientRotationArguments a{};
  a.in = in(p.in), a.turn = in(p.turn), a.bias = weight(p.bias);
  a.rows = m_.shape.rows();
  a.ranks = static_cast<int>(p.ranks), a.groups = static_cast<int>(p.groups);
  a.heads = static_cast<int>(p.heads), a.size = static_cast<int>(p.size());
  a.angles = static_cast<int>(p.angles()), a.halves = p.halves ? 1 : 0;
  return a;
}

void GradientPass::forward(const core::Rotation& p) {
  policy::GradientRotationArguments a = rotation(p);
  a.out = out(p.out);
  kernels_.trapezoid(stream_, "policy_gradient_rotation", a.rows * p.heads * (p.size() - p.angles()), a);
}

void GradientPass::back(const core::Rotation& p) {
  run_inputs();
  policy::GradientRotationArguments a = rotation(p);
  a.d_out = dense_given(p.out);
  a.d_in = stored(p.in), a.d_turn = stored(p.turn);
  a.bias_parts = sums().into(gradient(p.bias), a.rows, p.out.size);
  kernels_.trapezoid(stream_, "policy_gradient_rotation_back", a.rows * p.heads * (p.size() - p.angles()), a);
  kernels_.trapezoid(stream_, "policy_gradient_rotation_input_back", a.rows * p.in.size, a);
  settle();
}

// ---- delays ----

policy::GradientDelayArguments GradientPass::delay(const core::Delay& p) const {
  policy::GradientDelayArguments a{};
  const auto state = static_cast<std::size_t>(p.state);
  a.in = in(p.in), a.initial = m_.states[state], a.final = m_.final_states[state];
  a.sequences = m_.shape.sequences, a.seq = m_.shape.seq, a.size = static_cast<int>(p.in.size);
  return a;
}

void GradientPass::forward(const core::Delay& p) {
  policy::GradientDelayArguments a = delay(p);
  a.out = out(p.out);
  kernels_.trapezoid(stream_, "policy_gradient_delay", m_.shape.rows() * p.in.size, a);
}

void GradientPass::back(const core::Delay& p) {
  run_inputs();
  policy::GradientDelayArguments a = delay(p);
  a.d_out = dense_given(p.out), a.d_in = stored(p.in);
  a.d_initial = m_.d_states[static_cast<std::size_t>(p.state)];
  kernels_.trapezoid(stream_, "policy_gradient_delay_back", m_.shape.rows() * p.in.size, a);
  settle();
}

// ---- ranks ----

policy::GradientRankArguments GradientPass::ranks(const core::RankScale& p) const {
  policy::GradientRankArguments a{};
  a.in = in(p.in), a.weight = weight(p.weight), a.rows = m_.shape.rows();
  a.heads = static_cast<int>(p.heads), a.ranks = static_cast<int>(p.ranks);
  a.channels = static_cast<int>(p.channels()), a.back = p.back ? 1 : 0;
  return a;
}

void GradientPass::forward(const core::RankScale& p) {
  policy::GradientRankArguments a = ranks(p);
  a.out = out(p.out);
  kernels_.trapezoid(stream_, "policy_gradient_ranks", a.rows * p.out.size, a);
}

// The gradient of what it reads is the same the other way round.
void GradientPass::back(const core::RankScale& p) {
  run_inputs();
  policy::GradientRankArguments a = ranks(p), of_input = a;
  a.d_out = dense_given(p.out);
  const std::int64_t blocks = norm_blocks(a.rows), weights = p.heads * p.ranks * p.channels();
  a.weight_parts = sums().into(gradient(p.weight), blocks, weights);
  kernels_.trapezoid(stream_, "policy_gradient_ranks_back", blocks * weights, a);
  of_input.in = a.d_out, of_input.back = p.back ? 0 : 1, of_input.out = stored(p.in);
  kernels_.trapezoid(stream_, "policy_gradient_ranks", a.rows * p.in.size, of_input);
  settle();
}

}  // namespace exphil::cuda
