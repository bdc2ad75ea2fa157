// The resident policy on a CUDA device: checks it on the recorded match, then times its calls for one or
// several settings. Exits with 1 where a check fails.
//   make build/bench/gpu_policy
//   EXPHIL_NATIVE_KERNELS=kernels build/bench/gpu_policy ../shared/melee [check|time|windows|armed|batch|all]
//   [TUNING ...]
// FRAMES and AGENTS in the environment bound the length of the checks and the largest batch, LEAST the
// smallest one that "batch" times, 256 where it is missing; PRECISION is that of the weights and STATES that
// of the states, "f32" where they are missing. TUNING is "default" or a list for EXPHIL_NATIVE_POLICY
// (cuda/policy/tuning.hpp): "team=8,threads=256".
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "bench/gpu_policy_times.hpp"
#include "core/checkpoint/checkpoint.hpp"
#include "core/checkpoint/safetensors.hpp"
#include "core/error.hpp"
#include "core/session/session.hpp"
#include "core/trunk/load.hpp"
#include "cuda/device/context.hpp"
#include "cuda/policy/loader.hpp"
#include "test/c_src/support/step_without_waiting.hpp"

namespace {

using namespace exphil;
using namespace exphil::bench;
using core::Policy;
using core::State;
using States = std::vector<std::unique_ptr<State>>;

template <class T>
const T* data_of(const core::Safetensors& file, const char* name) {
  return static_cast<const T*>(file.find(name)->data);
}

class Check {
 public:
  Check(Policy& policy, const std::string& melee)
      : policy_(policy),
        config_(policy.config()),
        match_(core::Safetensors::open(melee + "/match.safetensors")),
        rollback_(core::Safetensors::open(melee + "/rollback.safetensors")),
        windows_(core::Safetensors::open(melee + "/windows60.safetensors")),
        frames_(std::min(from_environment("FRAMES", 1 << 20), match_.find("obs")->shape[0])),
        most_agents_(from_environment("AGENTS", 5000)) {}

  void all() {
    match();
    rollback();
    windows();
    prefill();
    batches();
  }
  void windows();

  const float* obs(std::int64_t frame) const {
    return data_of<float>(match_, "obs") + frame * config_.d_input;
  }

  Floats step(State& state, const float* obs) {
    Floats out(static_cast<std::size_t>(config_.d_output), NAN);
    State* pointer = &state;
    policy_.step(&pointer, 1, obs, out.data());
    return out;
  }

  Floats read(State& state) {
    Floats all(static_cast<std::size_t>(config_.state_floats()), NAN);
    policy_.read_state(state, all.data());
    return all;
  }

 private:
  void match() {
    const auto state = policy_.new_state();
    const float* logits = data_of<float>(match_, "logits");
    double worst = 0;
    for (std::int64_t i = 0; i < frames_; ++i) {
      const Floats out = step(*state, obs(i));
      worst = std::max(worst, relative_error(out.data(), logits + i * config_.d_output, out.size()));
      stepped_.insert(stepped_.end(), out.begin(), out.end());
    }
    report("match: worst frame, relative error", worst, 1e-5);
    last_ = read(*state);
    if (frames_ < match_.find("obs")->shape[0]) return;
    const std::size_t ssm = match_.find("ssm_state")->bytes / sizeof(float);
    report("match: last ssm state", relative_error(last_.data(), data_of<float>(match_, "ssm_state"), ssm),
           1e-5);
    report("match: last conv state",
           relative_error(last_.data() + ssm, data_of<float>(match_, "conv_state"), last_.size() - ssm),
           1e-5);
  }

  // At a frame number that was seen before, restores the state from before that frame.
  void rollback() {
    const auto* frame = data_of<std::int32_t>(rollback_, "frame");
    const float* inputs = data_of<float>(rollback_, "obs");
    const float* logits = data_of<float>(rollback_, "logits");
    std::map<std::int32_t, std::unique_ptr<State>> before;
    const auto state = policy_.new_state();
    double worst = 0;
    for (std::int64_t i = 0; i < std::min(frames_, rollback_.find("frame")->shape[0]); ++i) {
      auto& kept = before[frame[i]];
      if (kept) {
        policy_.copy_state(*state, *kept);
      } else {
        kept = policy_.new_state();
        policy_.copy_state(*kept, *state);
      }
      const Floats out = step(*state, inputs + i * config_.d_input);
      worst = std::max(worst, relative_error(out.data(), logits + i * config_.d_output, out.size()));
    }
    report("rollback: worst frame, relative error", worst, 1e-5);
  }

  void prefill() {
    for (const std::vector<std::int64_t>& cut :
         std::vector<std::vector<std::int64_t>>{{frames_},
                                                {1, 1, 1, frames_ - 3},
                                                {frames_ / 2 - 1, 1, 1, frames_ - frames_ / 2 - 1},
                                                {frames_ / 3, 2, frames_ - frames_ / 3 - 2}}) {
      const auto state = policy_.new_state();
      Floats out(stepped_.size(), NAN);
      std::int64_t first = 0;
      for (const std::int64_t seq : cut) {
        policy_.prefill(*state, obs(first), seq, out.data() + first * config_.d_output);
        first += seq;
      }
      const std::int64_t different = bit_differences(out, stepped_) + bit_differences(read(*state), last_);
      report(core::message("prefill in ", cut.size(), " parts: unlike stepping, bits").c_str(),
             static_cast<double>(different), 0);
    }
  }

  void batches() {
    for (const std::int64_t count : {2, 3, 7, 8, 9, 31, 64, 65, 256, 257, 1000, 1500, 5000}) {
      if (count <= most_agents_) check_batch(policy_, obs(0), count);
    }
  }

  float* scratch(std::int64_t frames) {
    scratch_.resize(static_cast<std::size_t>(frames * config_.d_output));
    return scratch_.data();
  }

  Policy& policy_;
  const core::PolicyConfig& config_;
  const core::Safetensors match_, rollback_, windows_;
  const std::int64_t frames_, most_agents_;
  Floats stepped_, last_, scratch_;
};

void Check::windows() {
  const auto* ends = data_of<std::int32_t>(windows_, "end_frame_index");
  const std::int64_t seq = 60;
  const std::int64_t count =
      std::min(std::max<std::int64_t>(1, frames_ / 50), windows_.find("end_frame_index")->shape[0]);
  Floats inputs, out(static_cast<std::size_t>(count * config_.d_output), NAN), alone = out;
  for (std::int64_t i = 0; i < count; ++i) {
    inputs.insert(inputs.end(), obs(ends[i] + 1 - seq), obs(ends[i] + 1));
  }
  policy_.window(inputs.data(), count, seq, out.data());
  double worst = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    worst = std::max(worst, relative_error(out.data() + i * config_.d_output,
                                           data_of<float>(windows_, "logits") + i * config_.d_output,
                                           static_cast<std::size_t>(config_.d_output)));
    policy_.window(inputs.data() + i * seq * config_.d_input, 1, seq, alone.data() + i * config_.d_output);
  }
  // Together they go through the row kernels, alone through policy_window.
  report("windows60: worst window, relative error", worst, 1e-5);
  report("windows60: values unlike one by one, bits", static_cast<double>(bit_differences(out, alone)), 0);
}

// A window alone; and a session that answers each frame as a window of 60, back to back, with pauses, and
// going back 7 frames.
void time_window_sessions(const std::shared_ptr<Policy>& policy, Check& check) {
  core::SessionOptions options;
  options.window = 60, options.history = 7;
  core::Session session(policy, options);
  const core::PolicyConfig& config = policy->config();
  Floats out(static_cast<std::size_t>(7 * config.d_output));
  std::int64_t frame = 0;
  const auto step = [&] { test::step_without_waiting(session, check.obs(frame++ % 3500), out.data()); };
  for (int i = 0; i < 60; ++i) step();
  for (const std::int64_t seq : {1, 15, 30, 60, 120}) {
    time(core::message("window of ", seq, " frames, one").c_str(), 500,
         [&] { policy->window(check.obs(frame++ % 3480), 1, seq, out.data()); });
  }
  time("window session, step", 1000, step);
  time("window session, step every 2 ms", 300, step, wait_2_ms);
  time("window session, resimulate 7", 300,
       [&] { session.resimulate(7, check.obs(frame++ % 3500), 7, out.data()); });
  std::unique_ptr<core::Snapshot> kept;
  time("window session, snapshot", 300, [&] { kept = session.snapshot(); });
  time("window session, restore and step", 300, [&] {
    session.restore(*kept);
    step();
  });
}

// Steps of sessions with and without latency: :armed: the same bits, and what they take back to back and
// every 2 ms, for which the clock arms a session some 50 us before its frame. In turns.
void armed_sessions(const std::shared_ptr<Policy>& policy, Check& check) {
  core::SessionOptions options;
  core::Session plain(policy, options);
  options.armed = true;
  core::Session armed(policy, options);
  const auto outputs = static_cast<std::size_t>(policy->config().d_output);
  Floats out(outputs);
  std::int64_t different = 0;
  core::Session again(policy, {}), again_armed(policy, options);
  for (const bool back_to_back : {true, false}) {
    std::vector<Floats> right;
    for (std::int64_t i = 0; i < 3600; ++i) {
      test::step_without_waiting(again, check.obs(i), out.data());
      right.push_back(out);
    }
    for (std::int64_t i = 0; i < 3600; ++i) {
      if (!back_to_back) again_armed.arm();
      test::step_without_waiting(again_armed, check.obs(i), out.data());
      different += bit_differences(out, right[static_cast<std::size_t>(i)]);
    }
  }
  report("armed: unlike plain, bits", static_cast<double>(different), 0);
  std::int64_t frame = 0;
  const auto step = [&](core::Session& session) {
    return [&] { test::step_without_waiting(session, check.obs(++frame % 3600), out.data()); };
  };
  const auto wait_and_arm = [&](core::Session& session) {
    return [&] {
      wait_2_ms();
      session.arm();
      const auto begin = Clock::now();
      while (microseconds(begin) < 50) {
      }
    };
  };
  for (int turn = 0; turn < 3; ++turn) {
    time("session step, plain", 5000, step(plain));
    time("session step, armed", 5000, step(armed));
    time("session step every 2 ms, plain", 500, step(plain), wait_2_ms);
    time("session step every 2 ms, armed", 500, step(armed), wait_and_arm(armed));
  }
}

// One call for so many agents; `least`: the smallest batch that is timed.
void time_batches(Policy& policy, Check& check, std::int64_t least, std::int64_t most_agents) {
  const core::PolicyConfig& config = policy.config();
  Floats out(static_cast<std::size_t>(most_agents * config.d_output));
  States states;
  std::vector<State*> pointers;
  Floats inputs;
  for (std::int64_t count : {2, 4, 8, 16, 32, 48, 64, 96, 128, 256, 512, 1024, 4096, 65536}) {
    if (count > most_agents) break;
    if (count < least) continue;
    if (count < most_agents && std::getenv("ONLY") != nullptr) continue;
    while (static_cast<std::int64_t>(states.size()) < count) {
      const float* from = check.obs(static_cast<std::int64_t>(states.size()) * 13 % 3600);
      inputs.insert(inputs.end(), from, from + config.d_input);
      states.push_back(policy.new_state());
      pointers.push_back(states.back().get());
    }
    time(core::message("step, ", count, " agents").c_str(), count > 2000 ? 20 : 200,
         [&] { policy.step(pointers.data(), count, inputs.data(), out.data()); });
  }
}

void time_all(Policy& policy, Check& check, std::int64_t most_agents) {
  const core::PolicyConfig& config = policy.config();
  const auto state = policy.new_state(), kept = policy.new_state();
  State* one = state.get();
  Floats out(static_cast<std::size_t>(3600 * config.d_output));
  std::int64_t frame = 0;
  time("step, one agent", 3000, [&] { policy.step(&one, 1, check.obs(frame++ % 3600), out.data()); });
  time(
      "step, one agent, every 2 ms", 300,
      [&] { policy.step(&one, 1, check.obs(frame++ % 3600), out.data()); }, wait_2_ms);
  time("restore, then step", 1000, [&] {
    policy.copy_state(*one, *kept);
    policy.step(&one, 1, check.obs(frame++ % 3600), out.data());
  });
  time("copy_state, call alone", 1000, [&] { policy.copy_state(*kept, *one); });
  time("new state (a snapshot)", 500, [&] { policy.copy_state(*policy.new_state(), *one); });
  time("window of 60 frames, 32 at once", 100,
       [&] { policy.window(check.obs(frame++ % 1000), 32, 60, out.data()); });
  time("prefill, 60 frames", 300, [&] { policy.prefill(*one, check.obs(frame++ % 3500), 60, out.data()); });
  time("prefill, 3600 frames", 20, [&] { policy.prefill(*one, check.obs(0), 3600, out.data()); });
  time_batches(policy, check, 2, most_agents);
}

void run(const std::string& melee, const std::string& mode, const std::string& tuning,
         std::int64_t most_agents) {
  std::printf("tuning %s\n", tuning.c_str());
  if (tuning == "default") {
    unsetenv("EXPHIL_NATIVE_POLICY");
  } else {
    setenv("EXPHIL_NATIVE_POLICY", tuning.c_str(), 1);
  }
  const auto begin = Clock::now();
  core::PolicyLoadOptions load;
  const char* const precision = std::getenv("PRECISION");
  if (precision != nullptr && !core::parse_precision(precision, &load.precision)) {
    core::fail(core::ErrorKind::invalid_argument, "", "no precision: ", precision);
  }
  const char* const states = std::getenv("STATES");
  if (states != nullptr && !core::parse_precision(states, &load.states)) {
    core::fail(core::ErrorKind::invalid_argument, "", "no states: ", states);
  }
  const auto weights = core::load_weights(core::Checkpoint::open(melee + "/policy.safetensors"), load);
  core::PolicyOptions options;
  options.max_sessions = most_agents + 16;
  const std::shared_ptr<Policy> policy = cuda::load_policy(cuda::Context::open(0), weights, options);
  std::printf("  loaded in %.0f ms, %.1f MB resident\n", microseconds(begin) / 1e3,
              static_cast<double>(policy->resident_bytes()) / 1e6);
  Check check(*policy, melee);
  if (mode == "all" || mode == "check") check.all();
  if (mode == "windows") check.windows();
  if (mode == "all" || mode == "armed") armed_sessions(policy, check);
  if (mode == "armed") return;
  if (mode == "batch") {
    time_batches(*policy, check, from_environment("LEAST", 256), most_agents);
    return;
  }
  if (mode != "check") time_window_sessions(policy, check);
  if (mode == "all" || mode == "time") time_all(*policy, check, most_agents);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr,
                 "usage: gpu_policy MELEE_FOLDER [check|time|windows|armed|batch|all] [TUNING ...]\n");
    return 2;
  }
  const std::string mode = argc > 2 ? argv[2] : "all";
  const std::int64_t most_agents = from_environment("AGENTS", 65536);
  std::vector<std::string> tunings(argv + std::min(argc, 3), argv + argc);
  if (tunings.empty()) tunings.push_back("default");
  for (const std::string& tuning : tunings) {
    try {
      run(argv[1], mode, tuning, most_agents);
    } catch (const core::Error& error) {
      std::printf("  FAILED: %s: %s\n", core::error_kind_name(error.kind()), error.what());
      ++failures;
    }
  }
  std::printf("%s\n", failures == 0 ? "all right" : "NOT RIGHT");
  return failures == 0 ? 0 : 1;
}
