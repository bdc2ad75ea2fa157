// A frame of a batch of agents of a network of scans in one launch (kernels/policy/scan_frame.cu): the bits
// of single steps, on an emulated GPU and on a real one.
#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/policy/rounding.hpp"
#include "cuda/cuda_test.hpp"
#include "cuda/emulated_gpu.hpp"
#include "cuda/policy/load_on_device.hpp"
#include "support/case_sample.hpp"
#include "support/catch.hpp"
#include "support/faults.hpp"
#include "support/policy_forms.hpp"

namespace exphil::test {
namespace {

using core::Precision;
using Weights = std::shared_ptr<const core::PolicyWeights>;

PolicySpec spec_of(std::int64_t d_input, std::int64_t d_model, std::int64_t d_inner, std::int64_t d_state) {
  PolicySpec spec;
  spec.d_input = d_input, spec.d_model = d_model, spec.d_inner = d_inner, spec.d_state = d_state;
  return spec;
}

PolicyForm form_of(const std::vector<PolicyForm>& forms, const std::string& name) {
  const auto found =
      std::find_if(forms.begin(), forms.end(), [&](const PolicyForm& form) { return form.name == name; });
  REQUIRE(found != forms.end());
  return *found;
}

void check(const PolicyForm& form, Precision precision, Precision states, const std::string& settings,
           const std::vector<std::int64_t>& counts) {
  INFO(form.name << " " << core::precision_name(precision) << " " << core::precision_name(states));
  CAPTURE(settings);
  const Environment tuning("EXPHIL_NATIVE_POLICY", settings.c_str());
  const Weights weights = std::make_shared<core::PolicyWeights>(
      core::with_states(core::rounded_weights(*form.weights, precision), states));
  check_policy_form(*load_on_device(weights, 400), *weights, 9, counts);
}

const std::string kAwaiting = "cluster=0,team=1,inline_obs=0,fused_limit=1,window_blocks=1";
// An emulated launch ends when it begins, so that it comes after its frames.
const std::string kEmulated = kAwaiting + ",frames_late=0";

// Clusters of two blocks; tiles of one agent and of several.
TEST_CASE("a frame of scans in one launch on an emulated GPU", "[.emulated_scan_frame]") {
  emulate_launches();
  const auto forms = policy_forms(spec_of(9, 34, 100, 5));
  // Each is a dozen kernels to compile. These have every switch on and off; the GPU runs more.
  for (const char* name : {"state_spaces", "exphil", "heads_after_layer_norm", "edifice_of_one_size",
                           "short_chunks_of_mean_dt", "bare"}) {
    INFO(name);
    const int before = emulated_launches("policy_scan_frame");
    check(form_of(forms, name), Precision::f32, Precision::f32, kEmulated, {2, 33});
    CHECK(emulated_launches("policy_scan_frame") > before);
  }
  check(form_of(forms, "heads_after_layer_norm"), Precision::int8, Precision::f32, kEmulated, {3, 25});
  check(form_of(forms, "exphil"), Precision::bf16, Precision::f32, kEmulated, {3, 25});
  check(form_of(forms, "exphil"), Precision::f32, Precision::f16, kEmulated, {20});
  // A block's channels in several passes, and weights that are copied ahead.
  const int before = emulated_launches("policy_scan_frame");
  check(form_of(policy_forms(spec_of(9, 34, 512, 5)), "exphil"), Precision::f32, Precision::f32, kEmulated,
        {3});
  CHECK(emulated_launches("policy_scan_frame") > before);
  // Channels whose number does not divide that of the threads.
  const int then = emulated_launches("policy_scan_frame");
  check(form_of(policy_forms(spec_of(9, 34, 192, 40)), "exphil"), Precision::f32, Precision::f32, kEmulated,
        {3});
  CHECK(emulated_launches("policy_scan_frame") > then);
}

// Each launch gives up before its frames are there, changes nothing, and is launched again.
TEST_CASE("a frame of scans that comes too late on an emulated GPU", "[.emulated_scan_frame]") {
  emulate_launches();
  const auto forms = policy_forms(spec_of(9, 34, 100, 5));
  for (const char* name : {"state_spaces", "exphil"}) {
    const auto launches = [&](const std::string& settings) {
      const int before = emulated_launches("policy_scan_frame");
      check(form_of(forms, name), Precision::f32, Precision::f32, settings, {20});
      return emulated_launches("policy_scan_frame") - before;
    };
    const int in_time = launches(kEmulated);
    CHECK(in_time > 0);
    CHECK(launches(kAwaiting + ",armed_microseconds=0") == 2 * in_time);
  }
}

TEST_CASE("which batches of scans are one launch on an emulated GPU", "[.emulated_scan_frame]") {
  emulate_launches();
  const auto launches = [](const PolicySpec& spec, Precision precision, std::int64_t count,
                           const std::string& settings) {
    const Environment tuning("EXPHIL_NATIVE_POLICY", settings.c_str());
    const auto policy = load_on_device(
        std::make_shared<core::PolicyWeights>(core::rounded_weights(*make_policy(spec), precision)),
        2 * count);
    std::vector<std::unique_ptr<core::State>> own;
    std::vector<core::State*> states;
    for (std::int64_t i = 0; i < count; ++i) {
      own.push_back(policy->new_state());
      states.push_back(own.back().get());
    }
    const std::vector<float> obs(static_cast<std::size_t>(count * spec.d_input), 0.5f);
    std::vector<float> out(static_cast<std::size_t>(count * policy->config().d_output));
    const int before = emulated_launches("policy_scan_frame");
    policy->step(states.data(), count, obs.data(), out.data());
    return emulated_launches("policy_scan_frame") - before;
  };
  const PolicySpec spec = spec_of(9, 34, 100, 5);
  CHECK(launches(spec, Precision::f32, 2, kEmulated) == 1);
  CHECK(launches(spec, Precision::f32, 2, kEmulated + ",batch_frame=0") == 0);
  CHECK(launches(spec, Precision::tf32x3, 2, kEmulated) == 0);
  CHECK(launches(spec, Precision::f32, 300, kEmulated) == 0);                 // more than the tiles take
  CHECK(launches(spec_of(9, 34, 70, 5), Precision::f32, 2, kEmulated) == 0);  // channels of no two blocks
}

TEST_CASE("batches of scans in one launch run without a GPU", "[cuda][policy][emulated]") {
  require_emulated("[.emulated_scan_frame]", {{"FAKE_CUDA_CAPABILITY", "90"}});
}

TEST_CASE("batches of scans in one launch have the bits of lone steps on the GPU", "[cuda][gpu][policy]") {
  if (!have_device()) return;
  CaseSample cases;
  for (const PolicySpec& spec : {spec_of(287, 256, 512, 16), spec_of(64, 128, 256, 16),
                                 spec_of(100, 64, 128, 5), spec_of(90, 128, 192, 40)}) {
    const auto forms = policy_forms(spec);
    const PolicyForm exphil = form_of(forms, "exphil");
    const std::vector<std::int64_t> counts = {2, 60, 256, 285};
    for (const char* name : {"state_spaces", "exphil", "heads_after_layer_norm"}) {
      if (cases.take()) check(form_of(forms, name), Precision::f32, Precision::f32, "fused_limit=1", counts);
    }
    if (cases.take()) check(exphil, Precision::f32, Precision::f32, "", counts);
    for (const Precision precision : {Precision::bf16, Precision::int8}) {
      if (cases.take()) check(exphil, precision, Precision::f32, "fused_limit=1", {50, 256});
    }
    if (cases.take()) check(exphil, Precision::f32, Precision::f16, "", {2, 50, 256});
  }
}

}  // namespace
}  // namespace exphil::test
