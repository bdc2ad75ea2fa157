#include "support/exphil_checks.hpp"

#include <algorithm>
#include <cstring>

#include "support/catch.hpp"
#include "support/exphil_data.hpp"
#include "support/mamba.hpp"
#include "support/numbers.hpp"
#include "support/safetensors_writer.hpp"

namespace exphil::test {

namespace {

using core::Policy;
using core::PolicyConfig;
using core::State;

using Floats = std::vector<float>;

// The windows of `seq` rows that end at `ends`; rows before 0 are copies of row 0.
Floats windows_at(const PolicyConfig& c, const Floats& frames, const std::vector<std::int32_t>& ends,
                  std::int64_t seq) {
  Floats windows;
  for (const std::int64_t end : ends) {
    for (std::int64_t t = end - seq + 1; t <= end; ++t) {
      const auto row = frames.begin() + std::max<std::int64_t>(t, 0) * c.d_input;
      windows.insert(windows.end(), row, row + c.d_input);
    }
  }
  return windows;
}

Floats answers_at(Policy& policy, const Floats& frames, const std::vector<std::int32_t>& ends,
                  std::int64_t seq) {
  const Floats windows = windows_at(policy.config(), frames, ends, seq);
  Floats out(ends.size() * static_cast<std::size_t>(policy.config().d_output));
  policy.window(windows.data(), static_cast<std::int64_t>(ends.size()), seq, out.data());
  return out;
}

Floats prefill(Policy& policy, State& state, const Floats& frames, std::int64_t first, std::int64_t seq) {
  Floats out(static_cast<std::size_t>(seq * policy.config().d_output));
  policy.prefill(state, frames.data() + first * policy.config().d_input, seq, out.data());
  return out;
}

bool same_bits(const Floats& p, const Floats& q) {
  return p.size() == q.size() && std::memcmp(p.data(), q.data(), p.size() * sizeof(float)) == 0;
}

// The tensors of a file as safetensors, with `zeroed` (where it is one of them) all zero, gamma: all one.
std::shared_ptr<const core::PolicyWeights> with_zeroed(const core::Checkpoint& file,
                                                       const std::string& zeroed, const char* dialect,
                                                       std::int64_t window) {
  SafetensorsWriter writer;
  for (const auto& [name, view] : file.tensors()) {
    Floats values(view.bytes / sizeof(float));
    std::memcpy(values.data(), view.data, view.bytes);
    const bool gamma = name.find(".gamma") != std::string::npos;
    if (name == zeroed) std::fill(values.begin(), values.end(), gamma ? 1.0f : 0.0f);
    std::vector<std::int64_t> shape;
    for (int axis = 0; axis < view.shape.rank(); ++axis) shape.push_back(view.shape[axis]);
    writer.add_f32(name, shape, values);
  }
  const TemporaryFile written(writer.bytes());
  core::PolicyLoadOptions options;
  options.trunk = {{"dialect", dialect}};
  options.window = window;
  return core::load_weights(core::Checkpoint::open(written.path()), options);
}

}  // namespace

void check_every_tensor_is_used(const MakePolicy& make) {
  const Floats frames = exphil_frames();
  struct Case {
    const char* file;
    const char* dialect;
    std::int64_t window;
  };
  for (const Case& which : {Case{"exphil_policy/policy_old_term.bin", "edifice_mamba", 20},
                            Case{"edifice_mamba2/short_window.nx", "edifice_mamba_ssd", 24}}) {
    const core::Checkpoint file = core::Checkpoint::open(exphil_path(which.file));
    const auto answer = [&](const std::string& zeroed) {
      const auto policy = make(with_zeroed(file, zeroed, which.dialect, which.window));
      return answers_at(*policy, frames, {100, 300, 500}, which.window);
    };
    const Floats whole = answer("");
    for (const auto& item : file.tensors()) {
      INFO(which.file << " " << item.first);
      CHECK(relative_error(answer(item.first), whole) > 1e-3);
    }
  }
}

void check_expected_outputs(const MakePolicy& make) {
  const Floats frames = exphil_frames();
  for (const ExphilSet& set : exphil_sets()) {
    for (const char* file : set.files) {
      INFO(file);
      const auto policy = make(exphil_policy(file));
      const PolicyConfig& c = policy->config();
      const std::string golden = exphil_path(set.golden), outputs = set.outputs;
      const auto ends = read_s32(golden, "window_ends");
      CHECK(relative_error(answers_at(*policy, frames, ends, c.window), read_f64(golden, outputs + "_f64")) <=
            1e-5);

      const auto state = policy->new_state();
      Floats carried = prefill(*policy, *state, frames, 0, 300);
      Floats values(static_cast<std::size_t>(c.state_floats()));
      policy->read_state(*state, values.data());
      CHECK(relative_error(parts_of(c, values, "ssm"), read_f32(golden, "ssm_after_300")) <= 1e-5);
      CHECK(relative_error(parts_of(c, values, "conv"), turned(c, read_f32(golden, "conv_after_300"))) <=
            1e-5);
      const Floats rest = prefill(*policy, *state, frames, 300, 300);
      carried.insert(carried.end(), rest.begin(), rest.end());
      CHECK(relative_error(carried, read_f32(golden, "stateful_" + outputs)) <= 1e-5);
      policy->read_state(*state, values.data());
      CHECK(relative_error(parts_of(c, values, "ssm"), read_f64(golden, "ssm_after_600_f64")) <= 1e-5);
      CHECK(relative_error(parts_of(c, values, "conv"), turned(c, read_f64(golden, "conv_after_600_f64"))) <=
            1e-5);
    }
  }
}

void check_every_position(const MakePolicy& make) {
  const Floats frames = exphil_frames();
  for (const ExphilSet& set : exphil_sets()) {
    INFO(set.name);
    const auto policy = make(exphil_policy(set.files[0]));
    const std::string golden = exphil_path(set.golden);
    const auto ends = read_s32(golden, "window_ends"), which = read_s32(golden, "position_windows");
    Floats positions;
    for (const std::int32_t w : which) {
      const std::int64_t window = policy->config().window;
      const auto state = policy->new_state();
      const Floats outs =
          prefill(*policy, *state, frames, ends[static_cast<std::size_t>(w)] - window + 1, window);
      positions.insert(positions.end(), outs.begin(), outs.end());
    }
    CHECK(relative_error(positions, read_f32(golden, std::string(set.outputs) + "_by_position")) <= 1e-5);
  }
}

void check_other_options(const MakePolicy& make) {
  const Floats frames = exphil_frames();
  core::PolicyLoadOptions per_channel, chunk;
  per_channel.trunk = {{"dt", "per_channel"}};
  chunk.trunk = {{"chunk_size", std::int64_t{16}}};
  const auto check = [&](const char* file, const core::PolicyLoadOptions& options, const std::string& golden,
                         const char* ends, const char* expected) {
    INFO(file << " " << expected);
    const auto policy = make(exphil_policy(file, options));
    const Floats got = answers_at(*policy, frames, read_s32(golden, ends), policy->config().window);
    CHECK(relative_error(got, read_f64(golden, expected)) <= 1e-5);
  };
  const std::string mamba = exphil_path("edifice_mamba/golden.safetensors");
  const std::string brief = exphil_path("edifice_mamba2/short_window_golden.safetensors");
  const std::string whole = exphil_path("exphil_policy/golden.safetensors");
  check("edifice_mamba/mamba.nx", per_channel, mamba, "window_ends", "hidden_per_channel_dt_f64");
  check("exphil_policy/policy.bin", per_channel, whole, "window_ends", "logits_per_channel_dt_f64");
  check("edifice_mamba2/short_window.nx", chunk, brief, "window_ends", "hidden_chunk16_f64");
  check("exphil_policy/policy.bin", {}, whole, "warmup_frames", "warmup_logits_f64");
}

void check_same_bits(const MakePolicy& make) {
  const Floats frames = exphil_frames();
  for (const ExphilSet& set : exphil_sets()) {
    INFO(set.name);
    const auto policy = make(exphil_policy(set.files[0]));
    const PolicyConfig& c = policy->config();
    const auto at_once = policy->new_state(), stepped = policy->new_state(), other = policy->new_state();
    const Floats whole = prefill(*policy, *at_once, frames, 0, c.window);
    Floats steps;
    for (std::int64_t t = 0; t < c.window; ++t) {
      // In a batch of two every second time; the other agent sees other frames.
      Floats obs(frames.begin() + t * c.d_input, frames.begin() + (t + 1) * c.d_input),
          out(2 * static_cast<std::size_t>(c.d_output));
      obs.insert(obs.begin(), frames.begin() + (t + 100) * c.d_input, frames.begin() + (t + 101) * c.d_input);
      State* both[] = {other.get(), stepped.get()};
      if (t % 2 == 0) {
        policy->step(both, 2, obs.data(), out.data());
      } else {
        policy->step(both + 1, 1, obs.data() + c.d_input, out.data() + c.d_output);
      }
      steps.insert(steps.end(), out.begin() + c.d_output, out.end());
    }
    CHECK(same_bits(steps, whole));
    const Floats window = answers_at(*policy, frames, {static_cast<std::int32_t>(c.window - 1)}, c.window);
    CHECK(same_bits(window, Floats(whole.end() - c.d_output, whole.end())));
  }
}

// The trunk's outputs of policies with heads, and what else the goldens hold of carried states: Edifice's own
// step on every 50th row, and a start as ExPhil's agent warms other backbones.
void check_other_outputs(const MakePolicy& make) {
  const Floats frames = exphil_frames();
  for (const ExphilSet& set : exphil_sets()) {
    if (std::string(set.outputs) != "logits") continue;
    INFO(set.name);
    MambaWeights without = mamba_weights(*exphil_policy(set.files[0]));
    without.config.d_output = without.config.d_model, without.config.groups.clear();
    const auto trunk = std::make_shared<const core::PolicyWeights>(described(without));
    const std::string golden = exphil_path(set.golden);
    const Floats hidden =
        answers_at(*make(trunk), frames, read_s32(golden, "window_ends"), trunk->config.window);
    CHECK(relative_error(hidden, read_f64(golden, "hidden_f64")) <= 1e-5);
  }
  const auto mamba = make(exphil_policy("edifice_mamba/mamba.nx"));
  const auto state = mamba->new_state();
  const Floats all = prefill(*mamba, *state, frames, 0, 600);
  Floats some;
  for (std::int64_t row = 0; row < 600; row += 50) {
    const auto first = all.begin() + row * mamba->config().d_output;
    some.insert(some.end(), first, first + mamba->config().d_output);
  }
  CHECK(relative_error(some, read_f32(exphil_path("edifice_mamba/golden.safetensors"),
                                      "stateful_hidden_edifice_step_every_50")) <= 1e-5);

  const auto policy = make(exphil_policy("exphil_policy/policy.bin"));
  const auto warmed = policy->new_state();
  for (std::int64_t i = 1; i < policy->config().window; ++i) prefill(*policy, *warmed, frames, 0, 1);
  CHECK(relative_error(prefill(*policy, *warmed, frames, 0, 60),
                       read_f32(exphil_path("exphil_policy/golden.safetensors"),
                                "stateful_padded_start_logits")) <= 1e-5);
}

}  // namespace exphil::test
