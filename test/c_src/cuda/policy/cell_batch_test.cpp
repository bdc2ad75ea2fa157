// A frame of a batch of agents with a GRU or an LSTM: one launch (kernels/policy/batch_frame.cu), or one for
// each layer (cell_batch.cu, or cell_wide.cu by warpgroups) or five, with the bits of single steps, on an
// emulated GPU and on a real one.
#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/policy/rounding.hpp"
#include "cuda/cuda_test.hpp"
#include "cuda/emulated_gpu.hpp"
#include "cuda/policy/agent_states.hpp"
#include "cuda/policy/gated_specs.hpp"
#include "cuda/policy/load_on_device.hpp"
#include "support/case_sample.hpp"
#include "support/catch.hpp"
#include "support/faults.hpp"
#include "support/policy_grad_checks.hpp"

namespace exphil::test {
namespace {

using Floats = std::vector<float>;
using Weights = std::shared_ptr<const core::PolicyWeights>;

// A frame of all agents into pinned memory, which the device writes itself; between values that are no
// answers.
Floats step_into_pinned(core::Policy& policy, core::State* const* states, std::int64_t count,
                        const Floats& obs, std::size_t values) {
  constexpr std::size_t kBeside = 5;
  const cuda::PinnedBuffer pinned =
      cuda::Context::open(0)->pinned_pool().allocate((values + 2 * kBeside) * sizeof(float));
  auto* const first = pinned.as<float>();
  std::fill_n(first, values + 2 * kBeside, -77.0f);
  policy.step(states, count, obs.data(), first + kBeside);
  CHECK(std::count(first, first + kBeside, -77.0f) == kBeside);
  CHECK(std::count(first + kBeside + values, first + values + 2 * kBeside, -77.0f) == kBeside);
  return Floats(first + kBeside, first + kBeside + values);
}

// The answers to four frames of so many agents, then their states: in one call for each frame, or in one for
// each agent. Of the calls for all every second one answers into pinned memory.
Floats played(core::Policy& policy, std::int64_t count, bool together) {
  const core::PolicyConfig& config = policy.config();
  const auto outputs = static_cast<std::size_t>(config.d_output);
  AgentStates agents(policy, count);
  std::vector<core::State*>& all = agents.all;
  Floats found;
  for (unsigned frame = 0; frame < 4; ++frame) {
    const Floats obs = Random(frame + 1).vector(static_cast<std::size_t>(count * config.d_input), -2, 2);
    Floats out(static_cast<std::size_t>(count) * outputs);
    if (together && frame % 2 == 0) policy.step(all.data(), count, obs.data(), out.data());
    if (together && frame % 2 == 1) out = step_into_pinned(policy, all.data(), count, obs, out.size());
    for (std::int64_t i = 0; !together && i < count; ++i) {
      policy.step(&all[static_cast<std::size_t>(i)], 1, obs.data() + i * config.d_input,
                  out.data() + static_cast<std::size_t>(i) * outputs);
    }
    found.insert(found.end(), out.begin(), out.end());
  }
  agents.read(policy, &found);
  return found;
}

void check_batches(const Weights& weights, std::int64_t count, const std::string& settings) {
  INFO(weights->config.d_input << " " << core::precision_name(weights->config.precision));
  CAPTURE(count);
  Floats alone;
  for (const char* batch : {"cell_batch=1024", "cell_batch=0"}) {
    CAPTURE(batch);
    const Environment tuning("EXPHIL_NATIVE_POLICY", (settings + batch).c_str());
    const auto policy = load_on_device(weights, 2 * count);
    if (alone.empty()) alone = played(*policy, count, false);
    CHECK(same_bits(played(*policy, count, true), alone));
  }
}

// Frames of the same agents again and again, in one call with what the policy keeps of them or in one for
// each agent; between them other calls, of which some change states. The answers, and the states in the end.
// moves: a frame reads one state and writes another one, as in a history. asked: becomes how often the policy
// asked whether the states are right.
Floats played_again(core::Policy& policy, std::int64_t count, bool together, bool moves,
                    int* asked = nullptr) {
  const core::PolicyConfig& config = policy.config();
  const auto agents = static_cast<std::size_t>(count), inputs = static_cast<std::size_t>(config.d_input),
             outputs = static_cast<std::size_t>(config.d_output);
  AgentStates states[2] = {AgentStates(policy, count), AgentStates(policy, count)};
  const std::unique_ptr<core::State> saved = policy.new_state();
  const std::unique_ptr<core::GroupMemory> memory = policy.group_memory(count);
  std::vector<std::int64_t> backwards(agents);
  for (std::size_t k = 0; k < agents; ++k) backwards[k] = count - 1 - static_cast<std::int64_t>(k);
  Floats found, out(agents * outputs), one(outputs), values(static_cast<std::size_t>(config.state_floats()));
  for (unsigned frame = 0; frame < 14; ++frame) {
    const Floats obs = Random(frame + 1).vector(agents * inputs, -2, 2);
    const auto &from = states[moves ? frame % 2 : 0].all, &to = states[moves ? 1 - frame % 2 : 0].all;
    if (together) {
      const bool rows = frame % 4 == 3;
      if (rows) {
        Floats reversed(obs.size());
        for (std::size_t k = 0; k < agents; ++k)
          std::copy_n(obs.data() + k * inputs, inputs, reversed.data() + (agents - 1 - k) * inputs);
        policy.advance_group(from.data(), to.data(), count, backwards.data(), reversed.data(), out.data(),
                             memory.get());
        for (std::size_t k = 0; k < agents; ++k) {
          const float* const row = out.data() + (agents - 1 - k) * outputs;
          found.insert(found.end(), row, row + outputs);
        }
      } else {
        const core::GroupStates group{from.data(), to.data(), memory.get()};
        int calls = 0;
        const auto is_right = [&] { return ++calls, true; };
        const auto is_wrong = [&] { return ++calls, false; };
        if (frame % 4 == 1) {
          CHECK_FALSE(policy.advance_group_if(is_wrong, group, count, obs.data(), out.data()));
        }
        if (!policy.advance_group_if(is_right, group, count, obs.data(), out.data())) {
          policy.advance_group(from.data(), to.data(), count, nullptr, obs.data(), out.data(), memory.get());
        }
        if (asked != nullptr) *asked += calls;
        found.insert(found.end(), out.begin(), out.end());
      }
    } else {
      for (std::size_t k = 0; k < agents; ++k) {
        policy.advance(&from[k], &to[k], 1, obs.data() + k * inputs, one.data());
        found.insert(found.end(), one.begin(), one.end());
      }
    }
    core::State& changed = *to[frame % agents];
    core::State* const stepped = &changed;
    switch (frame % 7) {
      case 1:
        policy.step(&stepped, 1, obs.data(), one.data());
        break;
      case 2:
        policy.copy_state(changed, *saved);
        break;
      case 3:
        policy.read_state(changed, values.data());
        std::reverse(values.begin(), values.end());
        policy.write_state(changed, values.data());
        break;
      case 4:
        policy.prefill(changed, obs.data(), 1, one.data());
        break;
      case 5:
        if (together && policy.checks_frames(count)) {
          Floats bad = obs;
          bad.back() = std::numeric_limits<float>::infinity();
          CHECK_THROWS_AS(policy.advance_group(to.data(), to.data(), count, nullptr, bad.data(), out.data(),
                                               memory.get()),
                          core::Error);
        }
        break;
      case 6:  // another batch has the lanes meanwhile
        if (together && !moves) policy.step(states[1].all.data(), count, obs.data(), out.data());
        break;
      default:
        policy.copy_state(*saved, changed);
    }
  }
  states[0].read(policy, &found);
  return found;
}

void check_groups(const Weights& weights, std::int64_t count, const std::string& settings) {
  INFO(weights->config.d_input << " " << core::precision_name(weights->config.precision));
  CAPTURE(count);
  CAPTURE(settings);
  const Environment tuning("EXPHIL_NATIVE_POLICY", settings.c_str());
  const auto policy = load_on_device(weights, 4 * count);
  for (const bool moves : {false, true}) {
    CAPTURE(moves);
    int asked = 0;
    const Floats together = played_again(*policy, count, true, moves, &asked);
    CHECK(same_bits(together, played_again(*policy, count, false, moves)));
    // Of 14 frames 11 are not in another order of rows, and before four of them the states are wrong.
    if (settings.find("guess=2") != std::string::npos) CHECK(asked == 11 + 4);
  }
}

Weights rounded_gru() {
  return std::make_shared<core::PolicyWeights>(
      core::rounded_weights(*make_gated(spec_of("gru", 41, 34)), core::Precision::int8));
}

// So that batches go through the products.
const char* const kEmulated = "cluster=0,team=1,inline_obs=0,fused_limit=1,pinned_answers=1,";

// Tiles of 16 agents that are full and not; the first layer reads fewer values than the units, or more.
TEST_CASE("batches of gated policies on an emulated GPU", "[.emulated_cell_batch]") {
  emulate_launches();
  for (const GatedSpec& spec :
       {spec_of("gru", 9, 34), spec_of("gru", 70, 34, true), spec_of("lstm", 41, 34)}) {
    const Weights weights = make_gated(spec);
    for (const std::int64_t count : {2, 33}) check_batches(weights, count, kEmulated);
  }
  check_batches(rounded_gru(), 5, kEmulated);
  CHECK(emulated_launches("policy_cell_batch") > 0);
  CHECK(emulated_launches("policy_batch_frame") == 0);
  // In slices, of which the products of the states are found ahead.
  for (const GatedSpec& spec : {spec_of("gru", 70, 34, true), spec_of("lstm", 41, 34)}) {
    check_batches(make_gated(spec), 33, std::string(kEmulated) + "agents_together=16,ahead_rows=2,");
  }
  check_batches(rounded_gru(), 20, std::string(kEmulated) + "agents_together=16,ahead_rows=2,");
  CHECK(emulated_launches("policy_cell_ahead") > 0);
  CHECK(emulated_launches("policy_cell_rest") > emulated_launches("policy_cell_ahead"));
  CHECK(emulated_launches("policy_cell_frame") > 0);
}

// Two products after the layers.
GatedSpec with_heads(const char* architecture, std::int64_t d_input = 70, std::int64_t units = 34) {
  GatedSpec spec = spec_of(architecture, d_input, units);
  spec.heads = true;
  return spec;
}

// An emulated launch ends when it begins, so that it comes after its frames.
const std::string kOneLaunch = std::string(kEmulated) + "frames_late=0,batch_frame=2,";
const std::string kGuess = "guess=2,";

// Tiles of one chunk and of several, of two blocks and of three; more agents than tiles have.
TEST_CASE("a batch's frame in one launch on an emulated GPU", "[.emulated_batch_frame]") {
  emulate_launches();
  for (const GatedSpec& spec : {spec_of("gru", 70, 34, true), spec_of("gru", 41, 34), with_heads("gru")}) {
    const Weights weights = make_gated(spec);
    for (const std::int64_t count : {2, 33}) check_batches(weights, count, kOneLaunch);
  }
  check_batches(make_gated(spec_of("gru", 100, 70)), 20, kOneLaunch);
  check_batches(make_gated(spec_of("gru", 41, 34)), 75, kOneLaunch);
  check_batches(make_gated(spec_of("gru", 140, 34)), 20, kOneLaunch);  // read in several pieces
  check_batches(rounded_gru(), 20, kOneLaunch);
  const auto launches = [](const GatedSpec& spec, std::int64_t count, const std::string& settings) {
    const Environment tuning("EXPHIL_NATIVE_POLICY", settings.c_str());
    const auto policy = load_on_device(make_gated(spec), 2 * count);
    const int before = emulated_launches("policy_batch_frame");
    played(*policy, count, true);
    return emulated_launches("policy_batch_frame") - before;
  };
  CHECK(launches(spec_of("gru", 41, 34), 20, kOneLaunch) == 4);
  CHECK(launches(spec_of("gru", 41, 34), 20, kOneLaunch + "batch_frame=1,") == 0);
  CHECK(launches(spec_of("gru", 41, 34), 20, kOneLaunch + "batch_frame=0,") == 0);
  CHECK(launches(spec_of("gru", 41, 34), 200, kOneLaunch) == 0);
  CHECK(launches(spec_of("gru", 9, 34), 20, kOneLaunch) == 0);  // fewer inputs than units
  CHECK(launches(spec_of("lstm", 41, 34), 20, kOneLaunch) == 0);
}

TEST_CASE("a batch of at most as many agents as were reserved allocates nothing", "[.emulated_batch_frame]") {
  emulate_launches();
  const std::string settings = std::string(kEmulated) + "frames_late=0,";
  const Environment tuning("EXPHIL_NATIVE_POLICY", settings.c_str());
  const auto policy = load_on_device(make_gated(spec_of("gru", 41, 34)), 300);
  policy->reserve_batch(100, 1);
  const std::size_t device = fake().device_bytes(), pinned = fake().pinned_bytes();
  const int before = emulated_launches("policy_batch_frame");
  for (const std::int64_t count : {90, 100}) {
    AgentStates agents(*policy, count);
    const Floats obs(static_cast<std::size_t>(count * policy->config().d_input), 0.5f);
    Floats out(static_cast<std::size_t>(count * policy->config().d_output));
    policy->step(agents.all.data(), count, obs.data(), out.data());
  }
  CHECK(emulated_launches("policy_batch_frame") == before + 1);  // of the larger one alone
  CHECK(fake().device_bytes() == device);
  CHECK(fake().pinned_bytes() == pinned);
}

TEST_CASE("groups of gated policies on an emulated GPU", "[.emulated_cell_groups]") {
  emulate_launches();
  for (const GatedSpec& spec : {spec_of("gru", 9, 34), spec_of("lstm", 41, 34)}) {
    check_groups(make_gated(spec), 18, kEmulated);
    // One slice: what went ahead is of the frame before.
    CHECK(emulated_launches("policy_cell_rest") > 0);
    CHECK(emulated_launches("policy_cell_batch") > 0);
    check_groups(make_gated(spec), 33, std::string(kEmulated) + "agents_together=16,ahead_rows=2,");
    check_groups(make_gated(spec), 33, std::string(kEmulated) + "slice_rows=64,agents_together=8,lanes=3,");
    check_groups(make_gated(spec), 18, kEmulated + kGuess);
    check_groups(make_gated(spec), 33, kEmulated + kGuess + "agents_together=16,ahead_rows=2,");
    check_groups(make_gated(spec), 33, kEmulated + kGuess + "agents_together=8,lanes=3,slice_rows=64,");
    check_groups(make_gated(spec), 5, std::string(kEmulated) + "cell_batch=0,");
  }
  CHECK(emulated_launches("policy_batch_frame") == 0);
}

TEST_CASE("groups whose frame is one launch on an emulated GPU", "[.emulated_frame_groups]") {
  emulate_launches();
  check_groups(make_gated(spec_of("gru", 70, 34, true)), 18, kOneLaunch);
  check_groups(make_gated(with_heads("gru")), 33, kOneLaunch);
  check_groups(make_gated(spec_of("gru", 70, 34, true)), 18, kOneLaunch + kGuess);
  check_groups(make_gated(spec_of("gru", 41, 34)), 5,
               kEmulated + kGuess + "batch_frame=2,armed_microseconds=0,");
  check_groups(make_gated(spec_of("gru", 41, 34)), 5, kOneLaunch + "batch_frame=0,");
  check_groups(rounded_gru(), 5, kOneLaunch);
  CHECK(emulated_launches("policy_cell_ahead") > 0);
  // The launch gives up before its frames are there, and is launched again.
  const int before = emulated_launches("policy_batch_frame");
  check_groups(make_gated(spec_of("gru", 41, 34)), 5, std::string(kEmulated) + "armed_microseconds=0,");
  CHECK(emulated_launches("policy_batch_frame") - before > 2 * 2 * 14);
}

struct Group {
  Group(core::Policy& policy, std::int64_t count)
      : agents(policy, count),
        memory(policy.group_memory(count)),
        out(static_cast<std::size_t>(count * policy.config().d_output)) {}
  AgentStates agents;
  std::unique_ptr<core::GroupMemory> memory;
  Floats out;
};

// A frame that fails changes no state, and the group goes on, with what went ahead or without it. Of one
// slice and of several; and of one launch; and where its states are probably right.
void check_group_faults(const std::string& settings) {
  const Environment tuning("EXPHIL_NATIVE_POLICY", settings.c_str());
  const auto policy = load_on_device(make_gated(spec_of("gru", 41, 34)), 200);
  for (const std::int64_t count : {5, 20}) {
    CAPTURE(count);
    const auto play = [&](Group& group, unsigned frame) {
      const Floats obs =
          Random(frame).vector(static_cast<std::size_t>(count * policy->config().d_input), -2, 2);
      core::State* const* const states = group.agents.all.data();
      const auto is_right = [] { return true; };
      if (policy->advance_group_if(is_right, {states, states, group.memory.get()}, count, obs.data(),
                                   group.out.data())) {
        return;
      }
      policy->advance_group(states, states, count, nullptr, obs.data(), group.out.data(), group.memory.get());
    };
    const auto sound = std::make_shared<Group>(*policy, count);
    REQUIRE(sound->memory != nullptr);
    Floats right[4];
    for (unsigned frame = 1; frame < 4; ++frame) play(*sound, frame), right[frame] = sound->out;
    const int thrown = fail_at_each_point("a group's frame", failing_driver_calls(kInvalidValue), [&] {
      const auto group = std::make_shared<Group>(*policy, count);
      play(*group, 1);
      const auto check = [=, &right](bool threw) {
        if (threw) play(*group, 2);
        CHECK(same_bits(group->out, right[2]));
        play(*group, 3);
        CHECK(same_bits(group->out, right[3]));
      };
      return Attempt{[=] { play(*group, 2); }, check};
    });
    CHECK(thrown > 10);
  }
}

TEST_CASE("every driver call of a group's frame fails once", "[.emulated_group_faults]") {
  emulate_launches();
  check_group_faults(std::string(kEmulated) + "batch_frame=0,agents_together=16,ahead_rows=2,");
  check_group_faults(kOneLaunch);
  check_group_faults(kOneLaunch + kGuess);
  check_group_faults(kEmulated + kGuess + "batch_frame=0,agents_together=16,ahead_rows=2,");
}

Weights in_tf32x3(const Weights& weights) {
  return std::make_shared<core::PolicyWeights>(core::rounded_weights(*weights, core::Precision::tf32x3));
}

// Rounds of 64 agents that are full and not, with fewer values than the units and more. The factors of the
// norm of few agents are found in the launch of the cell, those of more by a launch of their own.
TEST_CASE("batches of gated policies by warpgroups on an emulated GPU", "[.emulated_cell_wide]") {
  emulate_launches();
  for (const GatedSpec& spec :
       {spec_of("gru", 9, 34), spec_of("gru", 70, 34, true), spec_of("lstm", 41, 34)}) {
    const Weights weights = in_tf32x3(make_gated(spec));
    for (const std::int64_t count : {2, 130}) check_batches(weights, count, kEmulated);
  }
  const auto policy = load_on_device(in_tf32x3(make_gated(spec_of("gru", 9, 34))), 200);
  const int before = emulated_launches("policy_row_scales");
  played(*policy, 2, true);
  CHECK(emulated_launches("policy_row_scales") == before);
  played(*policy, 130, true);
  CHECK(emulated_launches("policy_row_scales") > before);
  CHECK(emulated_launches("policy_cell_wide") > 0);
  CHECK(emulated_launches("policy_cell_frame") > 0);
}

TEST_CASE("batches of gated policies run without a GPU", "[cuda][policy][emulated][gated]") {
  require_emulated("[.emulated_cell_batch]");
  const std::map<std::string, std::string> with_clusters = {{"FAKE_CUDA_CAPABILITY", "90"}};
  require_emulated("[.emulated_batch_frame]", with_clusters);
  require_emulated("[.emulated_cell_groups]");
  require_emulated("[.emulated_frame_groups]", with_clusters);
  require_emulated("[.emulated_group_faults]", with_clusters);
  require_emulated("[.emulated_cell_wide]", with_clusters);
}

// Batches whose frame is one launch of 4, 8 and 12 warps that compute, and frames in one and in several
// pieces.
std::vector<GatedSpec> one_launch_specs() {
  return {spec_of("gru", 70, 34, true), spec_of("gru", 140, 34), spec_of("gru", 250, 128),
          spec_of("gru", 384, 256)};
}

TEST_CASE("batches of many gated agents have the bits of lone steps on the GPU",
          "[cuda][gpu][policy][gated]") {
  if (!have_device()) return;
  CaseSample cases;
  const auto check = [&](const Weights& weights, std::int64_t count,
                         const char* settings = "pinned_answers=1,") {
    if (cases.take()) check_batches(weights, count, settings);
  };
  for (const auto& spec : {spec_of("gru", 287, 256), spec_of("lstm", 287, 256), spec_of("gru", 41, 352),
                           with_heads("gru", 400, 352)}) {
    const Weights weights = make_gated(spec);
    for (const std::int64_t count : {3, 40, 300, 700}) check(weights, count);
    check(weights, 300, "slice_rows=64,lanes=2,pinned_answers=1,");  // more slices than lanes
    for (const auto precision : {core::Precision::bf16, core::Precision::int8}) {
      check(std::make_shared<core::PolicyWeights>(core::rounded_weights(*weights, precision)), 300);
    }
    for (const std::int64_t count : {1, 3, 40, 300, 1200}) check(in_tf32x3(weights), count);
  }
  for (const auto& spec : one_launch_specs()) {
    for (const std::int64_t count : {100, 300, 640}) check(make_gated(spec), count);
  }
}

TEST_CASE("groups of many gated agents have the bits of lone steps on the GPU",
          "[cuda][gpu][policy][gated]") {
  if (!have_device()) return;
  CaseSample cases;
  for (const auto& spec :
       {spec_of("gru", 287, 256), spec_of("lstm", 287, 256), with_heads("gru", 287, 256)}) {
    const Weights weights = make_gated(spec);
    for (const std::int64_t count : {40, 256, 300, 700, 1024, 1100}) {
      if (cases.take()) check_groups(weights, count, "");
      if (cases.take()) check_groups(weights, count, "guess=0,");
    }
    if (cases.take()) check_groups(in_tf32x3(weights), 40, "");
  }
  for (const auto& spec : one_launch_specs()) {
    for (const std::int64_t count : {40, 300, 1024}) {
      if (cases.take()) check_groups(make_gated(spec), count, "");
    }
  }
}

}  // namespace
}  // namespace exphil::test
