// Policies of several forms on an emulated GPU (emulated_gpu.hpp): packing, arguments, the row kernels, and
// steps and windows by teams of one block and of several.
#include <algorithm>
#include <string>
#include <utility>

#include "core/environment.hpp"
#include "core/policy/rounding.hpp"
#include "cuda/cuda_test.hpp"
#include "cuda/emulated_gpu.hpp"
#include "cuda/policy/load_on_device.hpp"
#include "support/catch.hpp"
#include "support/errors.hpp"
#include "support/policy_forms.hpp"
#include "support/random_sessions.hpp"

namespace exphil::test {
namespace {

PolicySpec small_spec() {
  PolicySpec spec;
  spec.d_input = 9, spec.d_model = 34, spec.d_inner = 70, spec.d_state = 5;
  return spec;
}

TEST_CASE("forms of a policy on an emulated GPU", "[.emulated_policy]") {
  emulate_launches();
  // Each form is a dozen kernels to compile. These have every switch on and off; the GPU runs all.
  const std::vector<std::string> chosen = {"state_spaces", "short_chunks_of_mean_dt", "edifice_of_one_size",
                                           "exphil"};
  for (const PolicyForm& form : policy_forms(small_spec())) {
    if (std::find(chosen.begin(), chosen.end(), form.name) == chosen.end()) continue;
    INFO(form.name);
    const auto policy = load_on_device(form.weights, 16);
    check_policy_form(*policy, *form.weights, 9, {2, 5});
  }
  CHECK(emulated_launches("policy_step") > 0);
  CHECK(emulated_launches("policy_window") > 0);
  CHECK(emulated_launches("policy_mean") > 0);
  CHECK(emulated_launches("policy_product_few") > 0);
}

// The larger tiles of products over many rows.
TEST_CASE("products of many rows on an emulated GPU", "[.emulated_tiles]") {
  emulate_launches();
  const std::string given = core::environment("EXPHIL_NATIVE_POLICY");
  for (const char* tiles : {",fused_limit=0,some_blocks=1", ",fused_limit=0,some_blocks=1,many_blocks=1"}) {
    INFO(tiles);
    const Environment variable("EXPHIL_NATIVE_POLICY", (given + tiles).c_str());
    const auto weights = policy_forms(small_spec()).front().weights;
    for (const auto precision : {core::Precision::f32, core::Precision::tf32x3}) {
      INFO(core::precision_name(precision));
      const auto stored = std::make_shared<core::PolicyWeights>(core::rounded_weights(*weights, precision));
      check_policy_form(*load_on_device(stored, 64), *stored, 9, {2, 40});
    }
  }
  CHECK(emulated_launches("policy_product_some") > 0);
  CHECK(emulated_launches("policy_product_many") > 0);
}

// More slices than lanes: a lane's answers are copied out while its next frames are copied in.
TEST_CASE("batches of many slices on an emulated GPU", "[.emulated_slices]") {
  emulate_launches();
  const std::string given = core::environment("EXPHIL_NATIVE_POLICY");
  const std::string few = given + ",fused_limit=0,slice_rows=64,lanes=1";
  const Environment variable("EXPHIL_NATIVE_POLICY", few.c_str());
  const auto weights = policy_forms(small_spec()).front().weights;
  check_policy_form(*load_on_device(weights, 200), *weights, 9, {9, 150});
}

// The same by warpgroups: rows of several blocks and of several warpgroups in a block.
TEST_CASE("products by warpgroups on an emulated GPU", "[.emulated_wide]") {
  emulate_launches();
  const std::string given = core::environment("EXPHIL_NATIVE_POLICY");
  const Environment variable("EXPHIL_NATIVE_POLICY", (given + ",fused_limit=0,wide_rows=30").c_str());
  PolicySpec spec = small_spec();
  spec.d_inner = 130;  // columns of several blocks
  const auto weights = policy_forms(spec).front().weights;
  const auto stored =
      std::make_shared<core::PolicyWeights>(core::rounded_weights(*weights, core::Precision::tf32x3));
  check_policy_form(*load_on_device(stored, 200), *stored, 9, {2, 40, 150});
  CHECK(emulated_launches("policy_product_wide") > 0);
  CHECK(emulated_launches("policy_product_few") > 0);
}

// Two teams for windows, more blocks than the policy has segments of channels, and more windows than teams.
TEST_CASE("windows by teams of blocks on an emulated GPU", "[.emulated_teams]") {
  emulate_launches();
  for (const PolicyForm& form : policy_forms(small_spec())) {
    INFO(form.name);
    const auto policy = load_on_device(form.weights, 16);
    check_policy_form(*policy, *form.weights, 9, {2, 5});
  }
  CHECK(emulated_launches("policy_window_team") > 0);
  CHECK(emulated_launches("policy_window") == 0);
}

// Each precision in one form: int8's scales, and a mean that the kernels subtract before the heads and before
// in_proj.
TEST_CASE("precisions of a policy on an emulated GPU", "[.emulated_precision]") {
  emulate_launches();
  const std::vector<std::pair<std::string, core::Precision>> chosen = {
      {"state_spaces", core::Precision::f16},
      {"heads_after_layer_norm", core::Precision::int8},
      {"exphil", core::Precision::bf16},
      {"heads_after_layer_norm", core::Precision::tf32x3},
  };
  for (const PolicyForm& form : policy_forms(small_spec())) {
    for (const auto& [name, precision] : chosen) {
      if (form.name != name) continue;
      INFO(form.name << " " << core::precision_name(precision));
      const auto weights =
          std::make_shared<core::PolicyWeights>(core::rounded_weights(*form.weights, precision));
      const auto policy = load_on_device(weights, 16);
      check_policy_form(*policy, *weights, 9, {2, 5});
      if (precision != core::Precision::tf32x3) continue;
      const CaughtError error =
          error_of([&] { policy->armed_step(core::Policy::Frames::one_after_another); });
      CHECK(error.kind == core::ErrorKind::unsupported);
      CHECK(error.says(":tf32x3"));
      CHECK(policy->on_device());
    }
  }
}

// f32 and int8, so that what two models share on a device is covered.
TEST_CASE("random operations of sessions on an emulated GPU", "[.emulated_sessions]") {
  emulate_launches();
  PolicySpec spec;
  const auto weights = in_every_precision(*make_policy(spec));
  std::vector<std::shared_ptr<core::Policy>> policies;
  for (const auto& chosen : {weights.front(), weights.back()}) {
    policies.push_back(load_on_device(chosen, 400));
  }
  check_random_sessions(policies, session_operations(128), 3);
}

TEST_CASE("policies in several precisions run without a GPU", "[cuda][policy][emulated][precision]") {
  require_emulated("[.emulated_precision]");
}

TEST_CASE("random operations of sessions run without a GPU", "[cuda][policy][emulated][sessions]") {
  require_emulated("[.emulated_sessions]");
}

TEST_CASE("windows by teams of blocks run without a GPU", "[cuda][policy][emulated][teams]") {
  const std::string several = "window_team=4,window_blocks=8,window_rounds=512";
  // Longer windows of the same sessions go to the other kernel.
  const std::string one = "window_team=1,window_rows=3,window_blocks=1,window_rounds=2";
  for (const auto& [tag, shape] : {std::pair<const char*, std::string>("[.emulated_teams]", several),
                                   {"[.emulated_precision]", several},
                                   {"[.emulated_sessions]", one}}) {
    const std::string tuning = "cluster=0,team=1,inline_obs=0,batch_agents=2,window_threads=64,";
    require_emulated(tag, {{"FAKE_CUDA_CAPABILITY", "90"}, {"EXPHIL_NATIVE_POLICY", tuning + shape}});
  }
}

// More blocks than the policies have segments of channels: the last one has none.
TEST_CASE("steps by teams of blocks run without a GPU", "[cuda][policy][emulated][step_teams]") {
  require_emulated_teams({"[.emulated_policy]", "[.emulated_precision]"}, ",window_blocks=1,window_team=0");
}

TEST_CASE("policies of several forms run without a GPU", "[cuda][policy][emulated]") {
  for (const char* tag : {"[.emulated_policy]", "[.emulated_tiles]", "[.emulated_slices]"}) {
    require_emulated(tag);
  }
  require_emulated("[.emulated_wide]", {{"FAKE_CUDA_CAPABILITY", "90"}});
}

}  // namespace
}  // namespace exphil::test
