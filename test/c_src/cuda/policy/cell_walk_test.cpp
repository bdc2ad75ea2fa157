// The walk over all frames of a GRU's or an LSTM's layer in one launch (kernels/policy/cell_walk.cu): its
// shapes, and the bits of single steps, on an emulated GPU and on a real one.
#include "cuda/policy/cell_walk.hpp"

#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "core/policy/rounding.hpp"
#include "cuda/cuda_test.hpp"
#include "cuda/emulated_gpu.hpp"
#include "cuda/policy/gated_specs.hpp"
#include "cuda/policy/load_on_device.hpp"
#include "support/case_sample.hpp"
#include "support/catch.hpp"
#include "support/random_sessions.hpp"

namespace exphil::test {
namespace {

using Floats = std::vector<float>;
using Weights = std::shared_ptr<const core::PolicyWeights>;

std::vector<walk::Shape> shapes_of(const GatedSpec& spec, const cuda::PolicyTuning& tuning = {},
                                   core::Precision precision = core::Precision::f32) {
  cuda::DeviceProperties device;
  device.compute_major = 9, device.max_shared_per_block = 227 << 10;
  core::PolicyConfig config = make_gated(spec)->config;
  config.precision = precision;
  return cuda::cell_walk_candidates(device, cuda::PolicyDims(config), tuning, 0);
}

TEST_CASE("shapes of a walk", "[cuda][policy][gated][walk]") {
  const std::vector<walk::Shape> played = shapes_of(spec_of("gru", 41, 256));
  REQUIRE(played.size() == 2);
  CHECK(played[0].team == 16);
  CHECK(played[1].team == 8);
  CHECK(played[0].threads() == 128);  // one segment of 16 units each
  CHECK(played[0].staged() == 0);
  CHECK(shapes_of(spec_of("lstm", 41, 256)).back().threads() == 256);
  // 352 units are 88 fours, which 15 blocks share as well as 16.
  const std::vector<walk::Shape> uneven = shapes_of(spec_of("gru", 41, 352));
  REQUIRE(!uneven.empty());
  CHECK(uneven[0].team == 15);
  // Half of the weights are in shared memory; with twice as many units those of 16 bits fit, those of 32 do
  // not.
  const std::vector<walk::Shape> wide = shapes_of(spec_of("lstm", 41, 512));
  REQUIRE(!wide.empty());
  CHECK(wide[0].staged() > 0);
  CHECK(wide[0].sequences() == 4);
  CHECK(wide[0].shared_bytes(4) <= 227 << 10);
  CHECK(shapes_of(spec_of("gru", 41, 1024)).empty());
  CHECK(shapes_of(spec_of("gru", 41, 768), {}, core::Precision::bf16).size() == 1);
  CHECK(shapes_of(spec_of("gru", 41, 768)).empty());
  CHECK(shapes_of(spec_of("min_gru", 41, 34)).empty());
  // A warp of a block sums up one segment of 16 units.
  const walk::Shape on_tensor_cores = shapes_of(spec_of("gru", 41, 256), {}, core::Precision::tf32x3)[0];
  CHECK(on_tensor_cores.team == 16);
  CHECK(on_tensor_cores.threads() == 256);
  CHECK(on_tensor_cores.sequences() == 16);
  cuda::PolicyTuning off;
  off.walk_team = 0;
  CHECK(shapes_of(spec_of("gru", 41, 256), off).empty());
}

// The outputs of `count` windows, of a prefill in two parts, and the state after it.
struct Answers {
  Floats windows, filled, state;
  bool operator==(const Answers& other) const {
    return windows == other.windows && filled == other.filled && state == other.state;
  }
};

struct Frames {
  std::int64_t count, seq;
  Floats values;
  Frames(const core::PolicyConfig& config, std::int64_t windows, std::int64_t frames)
      : count(windows),
        seq(frames),
        values(Random(7).vector(static_cast<std::size_t>(windows * frames * config.d_input), -1, 1)) {}
};

Answers answers_of(core::Policy& policy, const Frames& frames) {
  const core::PolicyConfig& config = policy.config();
  const auto outputs = static_cast<std::size_t>(config.d_output);
  Answers made{Floats(static_cast<std::size_t>(frames.count) * outputs),
               Floats(static_cast<std::size_t>(frames.seq) * outputs),
               Floats(static_cast<std::size_t>(config.state_floats()))};
  policy.window(frames.values.data(), frames.count, frames.seq, made.windows.data());
  const auto state = policy.new_state();
  const std::int64_t half = frames.seq / 2;
  policy.prefill(*state, frames.values.data(), half, made.filled.data());
  policy.prefill(*state, frames.values.data() + half * config.d_input, frames.seq - half,
                 made.filled.data() + half * config.d_output);
  policy.read_state(*state, made.state.data());
  return made;
}

// The same from single steps.
Answers stepped(core::Policy& policy, const Frames& frames) {
  const core::PolicyConfig& config = policy.config();
  const auto outputs = static_cast<std::ptrdiff_t>(config.d_output);
  Answers made;
  for (std::int64_t i = 0; i < frames.count; ++i) {
    const auto state = policy.new_state();
    core::State* one = state.get();
    Floats out(static_cast<std::size_t>(frames.seq * outputs));
    for (std::int64_t t = 0; t < frames.seq; ++t) {
      policy.step(&one, 1, frames.values.data() + (i * frames.seq + t) * config.d_input,
                  out.data() + t * outputs);
    }
    made.windows.insert(made.windows.end(), out.end() - outputs, out.end());
    if (i > 0) continue;
    made.filled = out;
    made.state.resize(static_cast<std::size_t>(config.state_floats()));
    policy.read_state(*one, made.state.data());
  }
  return made;
}

// Prefills and windows walk their frames in one launch of each layer: 1, 2, 5 and 19 sequences of 1 to 9
// frames, more than the clusters take at once, and units that the blocks share evenly or not.
TEST_CASE("walks of gated policies on an emulated GPU", "[.emulated_gated_walk]") {
  emulate_launches();
  GatedSpec deep = spec_of("gru", 9, 34);
  deep.n_layer = 4;
  using core::Precision;
  for (const auto& [spec, precision] :
       {std::pair(deep, Precision::f32), std::pair(spec_of("lstm", 41, 34), Precision::f32),
        std::pair(spec_of("gru", 41, 70, true), Precision::f32),
        std::pair(spec_of("gru", 9, 34, true), Precision::tf32x3),
        std::pair(spec_of("lstm", 9, 70), Precision::tf32x3)}) {
    INFO(spec.architecture << " " << spec.units << " " << core::precision_name(precision));
    const Weights weights =
        std::make_shared<core::PolicyWeights>(core::rounded_weights(*make_gated(spec), precision));
    const auto policy = load_on_device(weights, 16);
    check_policy_form(*policy, *weights, 9, {2});
    for (std::int64_t seq = 1; seq <= (precision == Precision::f32 ? 9 : 3); ++seq) {
      const std::int64_t count = seq == 2 ? 19 : seq % 2 == 1 ? 5 : 1;
      CAPTURE(count, seq);
      const Frames frames(policy->config(), count, seq);
      CHECK(answers_of(*policy, frames) == stepped(*policy, frames));
    }
  }
  CHECK(emulated_launches("policy_cell_walk") > 0);
  CHECK(emulated_launches("policy_product_follow") > 0);
  CHECK(emulated_launches("policy_cell_frame") == emulated_launches("policy_cell_recall"));  // batches alone
}

// Those of many sequences, by warpgroups: 5 and 70 sequences of 1 to 3 frames; prefills, of one sequence.
TEST_CASE("wide walks of gated policies on an emulated GPU", "[.emulated_gated_wide_walk]") {
  emulate_launches();
  for (const GatedSpec& spec : {spec_of("gru", 9, 34, true), spec_of("lstm", 9, 70)}) {
    INFO(spec.architecture << " " << spec.units);
    const auto policy = load_on_device(std::make_shared<core::PolicyWeights>(
                                           core::rounded_weights(*make_gated(spec), core::Precision::tf32x3)),
                                       16);
    for (const auto& [count, seq] : std::vector<std::pair<int, int>>{{5, 1}, {5, 3}, {70, 2}}) {
      CAPTURE(count, seq);
      const Frames frames(policy->config(), count, seq);
      CHECK(answers_of(*policy, frames) == stepped(*policy, frames));
    }
  }
  CHECK(emulated_launches("policy_cell_walk_wide") > 0);
  CHECK(emulated_launches("policy_cell_walk") == 0);
  CHECK(emulated_launches("policy_cell_frame") == emulated_launches("policy_cell_recall"));  // batches alone
}

TEST_CASE("wide walks of gated policies run without a GPU", "[cuda][policy][emulated][gated][walk]") {
  require_emulated(
      "[.emulated_gated_wide_walk]",
      {{"FAKE_CUDA_CAPABILITY", "90"},
       {"EXPHIL_NATIVE_POLICY", "cluster=0,team=1,inline_obs=0,batch_agents=2,walk_team=4,wide_walk=1"}});
}

// Two clusters of blocks that count bytes or meet at barriers; five blocks share 96 units unevenly; one
// alone.
TEST_CASE("walks of gated policies run without a GPU", "[cuda][policy][emulated][gated][walk]") {
  for (const char* tuning :
       {"walk_team=4", "walk_team=4,counts=0,cell_batch=0", "walk_team=5", "walk_team=1"}) {
    const std::string all = std::string("cluster=0,team=1,inline_obs=0,batch_agents=2,") + tuning;
    require_emulated("[.emulated_gated_walk]",
                     {{"FAKE_CUDA_CAPABILITY", "90"}, {"EXPHIL_NATIVE_POLICY", all}});
  }
}

TEST_CASE("walks of gated policies in several precisions run without a GPU",
          "[cuda][policy][emulated][gated][walk]") {
  require_emulated("[.emulated_gated_precision]",
                   {{"FAKE_CUDA_CAPABILITY", "90"},
                    {"EXPHIL_NATIVE_POLICY", "cluster=0,team=1,inline_obs=0,batch_agents=2,walk_team=2"}});
}

// What ExPhil plays; units that 15 blocks share; weights of which some are in shared memory; each precision.
// In tf32x3 the walk's sums are those of tensor cores.
// In every shape: clusters of several sizes, which count bytes or meet at barriers. The same bits as frame by
// frame and as single steps. The policies are the inner loop: a sample has several of them
// (EXPHIL_CASES_EVERY).
TEST_CASE("walks of every shape on the GPU", "[cuda][gpu][policy][gated][walk]") {
  if (!have_device()) return;
  std::vector<Weights> policies;
  for (const auto& spec : {spec_of("gru", 287, 256), spec_of("lstm", 287, 256), spec_of("gru", 41, 352),
                           spec_of("lstm", 41, 512), spec_of("gru", 9, 34)}) {
    policies.push_back(make_gated(spec));
  }
  const auto append = [&](const Weights& weights, core::Precision precision) {
    policies.push_back(std::make_shared<core::PolicyWeights>(core::rounded_weights(*weights, precision)));
  };
  for (const auto precision : {core::Precision::bf16, core::Precision::f16, core::Precision::int8}) {
    append(policies[0], precision);
  }
  for (std::size_t i = 0; i < 5; ++i) append(policies[i], core::Precision::tf32x3);
  // synccheck does not follow them (test/sanitizers/clusters.cu).
  const bool large_clusters = std::getenv("EXPHIL_CLUSTERS_OF_8") == nullptr;
  CaseSample cases;
  for (const auto& [count, seq] :
       std::vector<std::pair<int, int>>{{1, 60}, {2, 9}, {5, 1}, {33, 5}, {300, 3}, {1100, 4}}) {
    for (const Weights& weights : policies) {
      if (!cases.take()) continue;
      INFO(weights->config.d_input << " " << core::precision_name(weights->config.precision));
      CAPTURE(count, seq);
      const Frames frames(weights->config, count, seq);
      Answers expected;
      {
        const Environment by_frame("EXPHIL_NATIVE_POLICY", "walk_team=0,wide_walk=0");
        const auto policy = load_on_device(weights, 16);
        expected = answers_of(*policy, frames);
        CHECK(expected == stepped(*policy, frames));
      }
      for (const char* tuning :
           {"walk_team=16", "walk_team=16,pipeline=0", "walk_team=16,pipeline=5",
            "walk_team=16,counts=0,pipeline=2", "walk_team=8", "walk_team=2", "wide_walk=2"}) {
        if (std::strstr(tuning, "=16") != nullptr && !large_clusters) continue;
        CAPTURE(tuning);
        const Environment walked("EXPHIL_NATIVE_POLICY", tuning);
        CHECK(answers_of(*load_on_device(weights, 16), frames) == expected);
      }
    }
  }
}

}  // namespace
}  // namespace exphil::test
