// Sessions with a window whose frames stay on the device (cuda/policy/row_windows.hpp, slices.hpp): answers
// of several slices, of windows longer than a slice, and what a scheduler may begin.
#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/environment.hpp"
#include "cuda/cuda_test.hpp"
#include "cuda/emulated_gpu.hpp"
#include "cuda/policy/gated_specs.hpp"
#include "cuda/policy/load_on_device.hpp"
#include "support/catch.hpp"
#include "support/numbers.hpp"
#include "support/policy_forms.hpp"

namespace exphil::test {
namespace {

// Layers that are walked and others, hidden values that are the frame's, and a kernel for windows: of its
// only layer it makes what the last frame alone needs for that one alone.
std::vector<PolicyForm> forms() {
  std::vector<PolicyForm> chosen = {{"gru", make_gated(spec_of("gru", 41, 34))},
                                    {"min_gru", make_gated(spec_of("min_gru", 9, 34))}};
  PolicySpec spec;
  spec.d_input = 9, spec.d_model = 34, spec.d_inner = 70, spec.d_state = 5;
  for (const PolicyForm& form : policy_forms(spec)) {
    if (form.name == "edifice_of_one_size") chosen.push_back(form);
  }
  spec.n_layer = 1;
  chosen.push_back(policy_forms(spec).front());
  return chosen;
}

class Windows {
 public:
  // Of `seq` frames; where they are mixed, those of some agents have fewer.
  Windows(core::Policy& policy, std::int64_t seq, bool mixed)
      : policy_(policy),
        d_input_(policy.config().d_input),
        d_output_(policy.config().d_output),
        seq_(seq),
        mixed_(mixed),
        slots_(seq + 3),
        frames_(Random(3).vector(static_cast<std::size_t>((kAgents + seq + 7) * d_input_), -1, 1)) {
    for (std::int64_t i = 0; i < kAgents; ++i) rings_.push_back(policy.new_ring(slots_));
  }

  // The next window of each agent that begins with frame `begin`, or as many later as the agent's number: in
  // one call.
  void together(std::int64_t begin) {
    std::vector<core::AgentWindow> windows(kAgents);
    for (std::int64_t i = 0; i < kAgents; ++i) {
      core::AgentWindow& window = windows[static_cast<std::size_t>(i)];
      window.ring = rings_[static_cast<std::size_t>(i)].get();
      window.frames = frame(begin + i);
      window.ring_windows = next(i, begin + i, 1);
    }
    std::vector<float> out(static_cast<std::size_t>(kAgents * d_output_));
    policy_.answer_windows(windows.data(), kAgents, out.data());
    for (std::int64_t i = 0; i < kAgents; ++i) check(i, begin + i, out.data() + i * d_output_);
  }
  // `count` windows of the first agent.
  void alone(std::int64_t begin, std::int64_t count) {
    std::vector<float> out(static_cast<std::size_t>(count * d_output_));
    rings_.front()->answer(next(0, begin, count), out.data());
    for (std::int64_t i = 0; i < count; ++i) check(0, begin + i, out.data() + i * d_output_);
  }

 private:
  static constexpr std::int64_t kAgents = 5;

  const float* frame(std::int64_t i) const { return frames_.data() + i * d_input_; }
  core::RingWindows next(std::int64_t agent, std::int64_t begin, std::int64_t count) {
    std::int64_t& held = held_[static_cast<std::size_t>(agent)];
    core::RingWindows made;
    made.first = begin % slots_, made.seq = seq_of(agent), made.count = count;
    const std::int64_t end = begin + made.seq + count - 1, first_fresh = std::max(begin, held);
    made.fresh = end - first_fresh;
    made.obs = frame(first_fresh);
    held = end;
    return made;
  }
  std::int64_t seq_of(std::int64_t agent) const { return mixed_ ? seq_ - 9 * (agent % 3) : seq_; }
  void check(std::int64_t agent, std::int64_t begin, const float* out) {
    CAPTURE(agent, begin);
    std::vector<float> expected(static_cast<std::size_t>(d_output_));
    policy_.window(frame(begin), 1, seq_of(agent), expected.data());
    CHECK(std::memcmp(expected.data(), out, expected.size() * sizeof(float)) == 0);
  }

  core::Policy& policy_;
  const std::int64_t d_input_, d_output_, seq_;
  const bool mixed_;
  const std::int64_t slots_;
  const std::vector<float> frames_;
  std::vector<std::unique_ptr<core::FrameRing>> rings_;
  std::vector<std::int64_t> held_ = std::vector<std::int64_t>(kAgents);  // frames before it are in the ring
};

// Slices have 64 rows, two windows of 30 frames, on fewer lanes than slices, or more where a cell recalls its
// state; and windows of 70 are longer.
TEST_CASE("windows of kept frames in several slices on an emulated GPU", "[.emulated_kept]") {
  emulate_launches();
  const std::string given = core::environment("EXPHIL_NATIVE_POLICY");
  const Environment variable("EXPHIL_NATIVE_POLICY", (given + ",slice_rows=64,lanes=2").c_str());
  for (const PolicyForm& form : forms()) {
    INFO(form.name);
    const auto policy = load_on_device(form.weights, 64);
    for (const auto& [seq, mixed] : {std::pair{30, false}, {30, true}, {70, false}, {70, true}}) {
      CAPTURE(seq, mixed);
      Windows windows(*policy, seq, mixed);
      windows.together(0);  // all frames are new
      windows.together(1);
      windows.alone(2, 3);
      windows.alone(5, 1);
      windows.together(6);  // the others have five new ones
    }
  }
  CHECK(emulated_launches("policy_keep_rows") > 0);
  CHECK(emulated_launches("policy_gather_rows") > 0);
}

TEST_CASE("a window of so many launches that they take long is not begun by a scheduler", "[.kept_split]") {
  fake().simplify_steps();
  GatedSpec spec = spec_of("min_gru", 9, 34);
  const auto short_one = load_64_on_device(make_gated(spec));
  CHECK(short_one->new_ring(8)->split() != nullptr);
  spec.n_layer = 40;
  const auto long_one = load_64_on_device(make_gated(spec));
  CHECK(long_one->new_ring(8)->split() == nullptr);
}

TEST_CASE("windows of kept frames run without a GPU", "[cuda][policy][emulated][window]") {
  require_emulated("[.emulated_kept]", {{"FAKE_CUDA_CAPABILITY", "80"}});
  require_emulated_teams({"[.emulated_kept]"}, ",walk_team=4,window_blocks=0");
  require_emulated("[.emulated_kept]", {{"FAKE_CUDA_CAPABILITY", "90"},
                                        {"EXPHIL_NATIVE_POLICY",
                                         "cluster=0,team=1,inline_obs=0,window_team=4,window_threads=64,"
                                         "window_blocks=8,window_rounds=512,walk_team=4"}});
  require_emulated("[.kept_split]",
                   {{"EXPHIL_NATIVE_POLICY", "cluster=0,team=1,inline_obs=0,fused_limit=1"}});
}

}  // namespace
}  // namespace exphil::test
