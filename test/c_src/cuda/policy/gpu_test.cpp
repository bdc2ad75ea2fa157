// The resident policy on a GPU: policies of unusual sizes against the reference, and the bit-for-bit
// guarantees of core/policy/policy.hpp. Skipped, with a message, where there is no device.
#include <thread>

#include "core/policy/reference.hpp"
#include "cuda/cuda_test.hpp"
#include "cuda/policy/gpu_calls.hpp"
#include "cuda/policy/load_on_device.hpp"
#include "support/case_sample.hpp"
#include "support/catch.hpp"
#include "support/melee.hpp"
#include "support/numbers.hpp"
#include "support/policy.hpp"
#include "support/policy_forms.hpp"
#include "support/random_sessions.hpp"
#include "support/rollback_case.hpp"

namespace exphil::test {

namespace {

Floats observations(const core::PolicyConfig& config, std::int64_t frames, std::uint64_t seed = 3) {
  return Random(seed).vector(static_cast<std::size_t>(frames * config.d_input), -1, 1);
}

std::vector<PolicySpec> awkward_policies() {
  std::vector<PolicySpec> all(6);
  all[1].d_input = 1, all[1].d_output = 1, all[1].d_model = 1, all[1].d_inner = 1, all[1].n_layer = 1;
  all[1].d_state = 1, all[1].d_conv = 1, all[1].dt_rank = 1;
  all[2].d_model = 64, all[2].d_inner = 128, all[2].d_state = 16, all[2].dt_rank = 4, all[2].d_conv = 2;
  all[3].d_model = 67, all[3].d_inner = 131, all[3].d_state = 17, all[3].dt_rank = 5;
  all[3].projection_bias = true, all[3].n_layer = 3;
  all[4].d_model = 40, all[4].d_inner = 100, all[4].d_state = 130, all[4].dt_rank = 33,
  all[4].conv_bias = false;
  all[5].d_input = 900, all[5].d_output = 70, all[5].d_model = 31, all[5].d_inner = 64, all[5].d_conv = 7;
  for (std::size_t i = 0; i < all.size(); ++i) all[i].seed = i + 1;
  return all;
}

}  // namespace

TEST_CASE("rolling back in a session on the GPU", "[cuda][gpu][policy][rollback]") {
  if (!have_device()) return;
  if (have_melee()) check_recorded_rollbacks(load_64_on_device(melee_policy()), melee_rollback());
  for (const PolicySpec& spec : awkward_policies()) {
    check_long_resimulation(load_on_device(make_policy(spec), 4));  // the arena grows
  }
}

TEST_CASE("random operations of sessions on the GPU on threads, and replays on one thread",
          "[cuda][gpu][policy][rollback][sessions]") {
  if (!have_device()) return;
  const std::vector<PolicySpec> specs = awkward_policies();
  const auto operations = session_operations(24'000) / static_cast<std::int64_t>(specs.size());
  for (const PolicySpec& spec : specs) {
    std::vector<std::shared_ptr<Policy>> policies;
    for (auto& weights : in_every_precision(*make_policy(spec))) {
      policies.push_back(load_on_device(weights, 400));
    }
    check_random_sessions(policies, operations, spec.seed);
  }
}

TEST_CASE("policies of unusual sizes on the GPU agree with the reference", "[cuda][gpu][policy]") {
  if (!have_device()) return;
  CaseSample cases;
  for (const PolicySpec& spec : awkward_policies()) {
    if (!cases.take()) continue;
    const auto weights = make_policy(spec);
    const auto policy = load_64_on_device(weights);
    const core::PolicyConfig& config = policy->config();
    CAPTURE(spec.d_model, spec.d_inner, spec.d_state, spec.d_conv, spec.dt_rank);
    constexpr std::int64_t kFrames = 20;
    const Floats obs = observations(config, kFrames);
    core::PolicyReferenceState reference(config);
    const auto state = policy->new_state();
    Floats stepped;
    for (std::int64_t i = 0; i < kFrames; ++i) {
      std::vector<double> expected(static_cast<std::size_t>(config.d_output));
      core::policy_reference_step(*weights, reference, obs.data() + i * config.d_input, expected.data());
      const Floats out = step(*policy, *state, obs.data() + i * config.d_input);
      CHECK(relative_error(out, expected) <= 1e-5);
      stepped.insert(stepped.end(), out.begin(), out.end());
    }
    const auto other = policy->new_state();
    CHECK(same_bits(prefill(*policy, *other, obs.data(), kFrames), stepped));
    CHECK(same_bits(read(*policy, *other), read(*policy, *state)));
    Floats last = unset(config.d_output);
    policy->window(obs.data(), 1, kFrames, last.data());
    CHECK(same_bits(last, Floats(stepped.end() - config.d_output, stepped.end())));
  }
}

namespace {

void check_forms_on_device(const test::PolicySpec& spec) {
  test::CaseSample cases;
  for (const test::PolicyForm& form : test::policy_forms(spec)) {
    if (!cases.take()) continue;
    INFO(form.name << " of d_model " << spec.d_model);
    const auto policy = test::load_on_device(form.weights, 400);
    test::check_policy_form(*policy, *form.weights, 40, {2, 3, 9, 70, 300});
  }
}

}  // namespace

// Apart, because a sanitizer takes minutes for each of them.
TEST_CASE("every form of a small policy on the GPU", "[cuda][gpu][policy][forms]") {
  if (test::have_device()) check_forms_on_device({});
}

TEST_CASE("every form of a larger policy on the GPU", "[cuda][gpu][policy][forms]") {
  if (!test::have_device()) return;
  test::PolicySpec spec;
  spec.d_input = 70, spec.d_model = 130, spec.d_inner = 300, spec.d_state = 17, spec.dt_rank = 5;
  check_forms_on_device(spec);
}

// The same answers from teams of every kind: their blocks exchange values in different ways.
TEST_CASE("every form of a policy on the GPU in teams of other shapes", "[cuda][gpu][policy][forms]") {
  if (!have_device()) return;
  PolicySpec spec;
  spec.d_model = 130, spec.d_inner = 300, spec.d_state = 17, spec.dt_rank = 5;
  CaseSample cases;
  for (const char* shape : {"team=1", "cluster=0", "staged=0", "fused_limit=0", "some_blocks=1,team=4",
                            "fused_limit=0,some_blocks=1,many_blocks=1"}) {
    const Environment variable("EXPHIL_NATIVE_POLICY", shape);
    for (const PolicyForm& form : policy_forms(spec)) {
      if (form.name != "edifice_of_one_size" && form.name != "exphil") continue;
      if (!cases.take()) continue;
      INFO(form.name << " with " << shape);
      const auto policy = load_64_on_device(form.weights);
      check_policy_form(*policy, *form.weights, 40, {2, 9, 40});
    }
  }
}

TEST_CASE("a batch on the GPU equals its agents alone, bit for bit", "[cuda][gpu][policy]") {
  if (!have_device()) return;
  std::vector<std::shared_ptr<const core::PolicyWeights>> policies = {make_policy(awkward_policies()[3])};
  if (have_melee()) policies.push_back(melee_policy());
  for (const auto& weights : policies) {
    const auto policy = load_on_device(weights, 2100);
    const core::PolicyConfig& config = policy->config();
    for (const std::int64_t count : {2, 3, 7, 8, 9, 31, 64, 65, 256, 257, 1030, 2050}) {
      CAPTURE(count);
      const Floats warm = observations(config, count, 5), obs = observations(config, count, 6);
      std::vector<std::unique_ptr<State>> states, copies;
      std::vector<State*> pointers;
      for (std::int64_t i = 0; i < count; ++i) {
        states.push_back(policy->new_state());
        step(*policy, *states.back(), warm.data() + i * config.d_input);
        if (i % 17 == 0) {
          copies.push_back(policy->new_state());
          policy->copy_state(*copies.back(), *states.back());
        }
        pointers.push_back(states.back().get());
      }
      Floats out = unset(count * config.d_output);
      policy->step(pointers.data(), count, obs.data(), out.data());
      for (std::int64_t i = 0; i < count; i += 17) {
        const auto at = static_cast<std::size_t>(i);
        const Floats alone = step(*policy, *copies[at / 17], obs.data() + i * config.d_input);
        CHECK(same_bits(alone,
                        Floats(out.begin() + i * config.d_output, out.begin() + (i + 1) * config.d_output)));
        CHECK(same_bits(read(*policy, *copies[at / 17]), read(*policy, *states[at])));
      }
    }
  }
}

TEST_CASE("states on the GPU: zeros, copies and written values are read back", "[cuda][gpu][policy]") {
  if (!have_device()) return;
  for (const PolicySpec& spec : awkward_policies()) {
    const auto policy = load_on_device(make_policy(spec), 1);
    const core::PolicyConfig& config = policy->config();
    std::vector<std::unique_ptr<State>> states;
    for (int i = 0; i < 40; ++i) states.push_back(policy->new_state());  // beyond max_sessions
    for (const auto& state : states) {
      for (const float value : read(*policy, *state)) REQUIRE(value == 0.0f);
    }
    const Floats values = Random(9).vector(static_cast<std::size_t>(config.state_floats()), -1, 1);
    policy->write_state(*states[3], values.data());
    CHECK(same_bits(read(*policy, *states[3]), values));
    policy->copy_state(*states[7], *states[3]);
    CHECK(same_bits(read(*policy, *states[7]), values));
    states.erase(states.begin() + 3);  // the next owner of its slot finds zeros
    const auto next = policy->new_state();
    for (const float value : read(*policy, *next)) REQUIRE(value == 0.0f);
  }
}

TEST_CASE("threads step their own agents on one GPU policy concurrently", "[cuda][gpu][policy]") {
  if (!have_device()) return;
  const auto policy = load_64_on_device(make_policy(awkward_policies()[2]));
  const core::PolicyConfig& config = policy->config();
  constexpr std::int64_t kFrames = 200;
  constexpr int kThreads = 6;
  const Floats obs = observations(config, kFrames);
  const auto play = [&] {
    const auto state = policy->new_state();
    Floats all;
    for (std::int64_t i = 0; i < kFrames; ++i) {
      const Floats out = step(*policy, *state, obs.data() + i * config.d_input);
      all.insert(all.end(), out.begin(), out.end());
    }
    return all;
  };
  const Floats expected = play();
  std::vector<Floats> results(kThreads);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] { results[static_cast<std::size_t>(t)] = play(); });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Floats& result : results) CHECK(same_bits(result, expected));
}

// More than 32 of one size, which are launched as a graph then.
TEST_CASE("batches of the same sizes again and again have the bits of lone steps",
          "[cuda][gpu][policy][graphs]") {
  if (!have_device()) return;
  PolicySpec spec;
  for (const core::Precision precision : {core::Precision::f32, core::Precision::tf32x3}) {
    const auto weights =
        std::make_shared<core::PolicyWeights>(core::rounded_weights(*make_policy(spec), precision));
    const auto policy = load_on_device(weights, 4000);
    const std::int64_t d_input = spec.d_input, d_output = spec.d_output, most = 2100;
    constexpr int kFrames = 40;
    const std::vector<float> frames =
        Random(9).vector(static_cast<std::size_t>(kFrames * most * d_input), -1, 1);
    std::vector<float> out(static_cast<std::size_t>(most * d_output)),
        one(static_cast<std::size_t>(d_output));
    // Smaller ones come back after the buffers have grown, and some go through several lanes.
    for (const std::int64_t count : {70, 33, 1000, 70, 2100, 33, 1000}) {
      CAPTURE(count);
      std::vector<std::unique_ptr<core::State>> states, alone;
      std::vector<core::State*> pointers;
      for (std::int64_t i = 0; i < count; ++i) {
        states.push_back(policy->new_state()), pointers.push_back(states.back().get());
        if (i % 97 == 0) alone.push_back(policy->new_state());
      }
      std::int64_t different = 0;
      for (int t = 0; t < kFrames; ++t) {
        const float* const obs = frames.data() + t * most * d_input;
        policy->step(pointers.data(), count, obs, out.data());
        for (std::size_t i = 0; i < alone.size(); ++i) {
          core::State* const state = alone[i].get();
          const auto row = static_cast<std::int64_t>(i) * 97;
          policy->step(&state, 1, obs + row * d_input, one.data());
          for (std::int64_t j = 0; j < d_output; ++j) {
            different +=
                one[static_cast<std::size_t>(j)] != out[static_cast<std::size_t>(row * d_output + j)];
          }
        }
      }
      CHECK(different == 0);
    }
  }
}

}  // namespace exphil::test
