// Policies of Edifice and ExPhil on the CPU: the expected outputs, the same bits in every kind of call, and
// an effect of every tensor.
#include "core/policy/reference.hpp"
#include "core/policy/rounding.hpp"
#include "host/policy/policy.hpp"
#include "support/catch.hpp"
#include "support/exphil_checks.hpp"
#include "support/exphil_data.hpp"
#include "support/mamba.hpp"
#include "support/numbers.hpp"
#include "support/policy_forms.hpp"

namespace exphil {

namespace {

using core::PolicyConfig;
using test::relative_error;

using Floats = std::vector<float>;

std::unique_ptr<core::Policy> make(std::shared_ptr<const core::PolicyWeights> weights) {
  return host::make_policy(*weights, {});
}

}  // namespace

TEST_CASE("each tensor of a file is used", "[host][policy][exphil]") {
  if (test::have_exphil()) test::check_every_tensor_is_used(make);
}

TEST_CASE("the expected windows, positions and carried states, from every file", "[host][policy][exphil]") {
  if (!test::have_exphil()) return;
  test::check_expected_outputs(make);
  test::check_every_position(make);
  test::check_other_options(make);
  test::check_other_outputs(make);
}

TEST_CASE("steps, batches, prefill and windows of every dialect give the same bits",
          "[host][policy][exphil]") {
  if (test::have_exphil()) test::check_same_bits(make);
}

TEST_CASE("every form of a policy on the CPU, in every precision", "[host][policy][forms][precision]") {
  for (const core::Precision precision :
       {core::Precision::f32, core::Precision::bf16, core::Precision::f16, core::Precision::int8}) {
    for (const test::PolicyForm& form : test::policy_forms({})) {
      INFO(form.name << " " << core::precision_name(precision));
      const core::PolicyWeights weights = core::rounded_weights(*form.weights, precision);
      test::check_policy_form(*host::make_policy(weights, {}), weights, 20, {2, 9, 70});
    }
  }
}

// Without an input projection, without heads or with a head of one linear map, with D and a learned A:
// combinations that no file here has. The files check the oracle; this checks the CPU against it.
TEST_CASE("other combinations of the description agree with the oracle", "[host][policy][exphil]") {
  if (!test::have_exphil()) return;
  const auto base = test::exphil_policy("edifice_mamba2/short_window.nx");
  for (int form = 0; form < 16; ++form) {
    INFO("form " << form);
    test::MambaWeights w = test::mamba_weights(*base);
    test::Random random(static_cast<std::uint64_t>(form));
    core::mamba1::Spec& spec = w.config.spec;
    const auto model = static_cast<std::size_t>(w.config.d_model);
    if (form & 1) spec.input_projection = false, w.config.d_input = w.config.d_model, w.input_proj.clear();
    if (form & 2)
      spec.final_norm = true, w.norm_f = random.vector(model, 0.8f, 1.2f),
      w.norm_f_bias = random.vector(model, -0.5f, 0.5f);
    if (form & 4) {
      spec.input_dt = core::mamba1::InputDt::per_channel;
      w.config.d_output = 5;
      w.head = random.vector(5 * model, -0.3f, 0.3f), w.head_bias = random.vector(5, -0.3f, 0.3f);
    }
    if (form & 8) {
      spec.norm = core::NormKind::rms;
      w.norm_f_bias.clear();
      for (test::MambaLayer& layer : w.layers) {
        layer.norm_bias.clear();
        layer.d = random.vector(static_cast<std::size_t>(w.config.d_inner), -1, 1);
        layer.a_log =
            random.vector(static_cast<std::size_t>(w.config.d_inner * w.config.d_state), -0.2f, 3.0f);
      }
    }
    const core::PolicyWeights described = test::described(w);
    const PolicyConfig& c = described.config;
    const auto policy = host::make_policy(described, {});
    for (const std::int64_t seq : {1, 3, 24, 40}) {
      const Floats frames = random.vector(static_cast<std::size_t>(seq * c.d_input), -1, 1);
      std::vector<double> expected(static_cast<std::size_t>(seq * c.d_output));
      core::policy_reference_window(described, frames.data(), seq, expected.data());
      Floats out(static_cast<std::size_t>(c.d_output));
      policy->window(frames.data(), 1, seq, out.data());
      CHECK(relative_error(out.data(), expected.data() + (seq - 1) * c.d_output, out.size()) <= 1e-5);
    }
  }
}

}  // namespace exphil
