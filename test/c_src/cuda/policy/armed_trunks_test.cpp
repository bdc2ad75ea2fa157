// Armed frames of every gated trunk (GRU, LSTM, minGRU, minLSTM, gated DeltaNet) have the bits of plain ones:
// outputs and states, with the real kernels on the emulated GPU, and random operations there and on a GPU.
#include <cstddef>
#include <string>
#include <vector>

#include "cuda/armed_player.hpp"
#include "cuda/emulated_gpu.hpp"
#include "cuda/policy/forms_on_device.hpp"
#include "cuda/policy/gated_specs.hpp"
#include "support/catch.hpp"
#include "support/head_policy.hpp"

namespace exphil::test {
namespace {

// Both layouts of GRU and LSTM; a gated DeltaNet of one and of two heads.
std::vector<PolicyForm> armed_forms() {
  std::vector<PolicyForm> all = {{"lstm, fused", make_gated(spec_of("lstm", 9, 34, true))}};
  for (const GatedSpec& spec : gated_specs()) {
    all.push_back({spec.architecture + (spec.fused ? ", fused" : ""), make_gated(spec)});
  }
  DeltanetSpec two, one;
  two.d_input = 9, two.units = 34, two.heads = 2;
  one.d_input = one.units = 33, one.heads = 1, one.projects = false;
  all.push_back({"gated_deltanet of two heads", load_policy(deltanet_file(two))});
  all.push_back({"gated_deltanet of one head", load_policy(deltanet_file(one))});
  return all;
}

// A frame is one launch: were the launch ahead of its observation not the one that answers, it would be two.
void check_armed(const SharedPolicy& policy) {
  ArmedPlayer plain(policy, false), armed(policy, true);
  std::vector<Floats> right;
  for (std::size_t t = 0; t < kArmedFrames; ++t) right.push_back(plain.play(t));
  const std::int64_t before = launches();
  const int ahead = emulated_launches("policy_step_armed");
  for (std::size_t t = 0; t < kArmedFrames; ++t) {
    CAPTURE(t);
    armed.session.arm();
    CHECK(armed.play(t) == right[t]);
  }
  CHECK(launches() - before <= static_cast<std::int64_t>(kArmedFrames + kArmedFrames / 8));
  CHECK(emulated_launches("policy_step_armed") - ahead >= static_cast<int>(kArmedFrames));
  CHECK(armed.session.export_state() == plain.session.export_state());
}

TEST_CASE("emulated armed frames of gated trunks have the bits of plain frames", "[.armed_trunks]") {
  emulate_launches();
  for (const PolicyForm& form : armed_forms()) {
    INFO(form.name);
    check_armed(load_on_device(form.weights, 16));
  }
  CHECK(fake().armed_timeouts() == 0);
}

TEST_CASE("random operations of emulated armed sessions of gated trunks", "[.armed_trunk_sessions]") {
  emulate_launches();
  // All forms are played so on a GPU: to compile for the emulated one takes seconds for each.
  const std::vector<PolicyForm> forms = armed_forms();
  for (std::size_t i = 0; i < forms.size(); i += 3) {
    const PolicyForm& form = forms[i];
    INFO(form.name);
    const int ahead = emulated_launches("policy_step_armed");
    check_random_sessions({load_on_device(form.weights, 400)}, session_operations(128), 5, true);
    CHECK(emulated_launches("policy_step_armed") > ahead);
  }
}

// As in armed_test.cpp, where kShortWait is explained. Walks of prefills by clusters, and frames of batches
// that wait for the host, are not emulated.
TEST_CASE("armed frames of gated trunks run without a GPU", "[cuda][policy][armed][emulated][gated]") {
  const std::string emulated = std::string(kEmulatedPolicy) + ",walk_team=0,batch_frame=0";
  for (const auto& [tag, wait] :
       {std::pair("[.armed_trunks]", kLongWait), std::pair("[.armed_trunk_sessions]", kShortWait)}) {
    require_emulated(tag, {{"EXPHIL_NATIVE_POLICY", emulated + wait}, {"FAKE_CUDA_CAPABILITY", "90"}});
  }
}

TEST_CASE("random operations of armed sessions of gated trunks on the GPU",
          "[cuda][gpu][policy][armed][sessions][gated]") {
  if (!have_device() || cuda::query_device(0).architecture() < 90) return;
  const std::vector<PolicyForm> forms = armed_forms();
  const auto operations = session_operations(12'000) / static_cast<std::int64_t>(forms.size());
  for (const PolicyForm& form : forms) {
    INFO(form.name);
    const auto weights = in_every_precision(*form.weights);  // f32 first, int8 last
    check_random_sessions({load_on_device(weights.front(), 400), load_on_device(weights.back(), 400)},
                          operations, 7, true);
  }
}

}  // namespace
}  // namespace exphil::test
