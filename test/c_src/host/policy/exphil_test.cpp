// Policies of Edifice and ExPhil on the CPU: the expected outputs, the same bits in every kind of call, and
// an effect of every tensor.
#include <algorithm>
#include <cstring>

#include "core/policy/reference.hpp"
#include "host/policy/policy.hpp"
#include "support/catch.hpp"
#include "support/exphil_data.hpp"
#include "support/numbers.hpp"
#include "support/safetensors_writer.hpp"

namespace exphil {

namespace {

using core::Policy;
using core::PolicyConfig;
using core::State;
using test::exphil_path;
using test::relative_error;

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
                                                       const std::string& zeroed, core::Dialect dialect,
                                                       std::int64_t window) {
  test::SafetensorsWriter writer;
  for (const auto& [name, view] : file.tensors()) {
    Floats values(view.bytes / sizeof(float));
    std::memcpy(values.data(), view.data, view.bytes);
    const bool gamma = name.find(".gamma") != std::string::npos;
    if (name == zeroed) std::fill(values.begin(), values.end(), gamma ? 1.0f : 0.0f);
    std::vector<std::int64_t> shape;
    for (int axis = 0; axis < view.shape.rank(); ++axis) shape.push_back(view.shape[axis]);
    writer.add_f32(name, shape, values);
  }
  const test::TemporaryFile written(writer.bytes());
  core::PolicyLoadOptions options;
  options.dialect = dialect;
  options.window = window;
  return core::load_weights(core::Checkpoint::open(written.path()), options);
}

}  // namespace

TEST_CASE("each tensor of a file is used", "[host][policy][exphil]") {
  if (!test::have_exphil()) return;
  const Floats frames = test::exphil_frames();
  struct Case {
    const char* file;
    core::Dialect dialect;
    std::int64_t window;
  };
  for (const Case& which : {Case{"exphil_policy/policy_old_term.bin", core::Dialect::edifice_mamba, 20},
                            Case{"edifice_mamba2/short_window.nx", core::Dialect::edifice_mamba_ssd, 24}}) {
    const core::Checkpoint file = core::Checkpoint::open(exphil_path(which.file));
    const auto answer = [&](const std::string& zeroed) {
      const auto policy = host::make_policy(*with_zeroed(file, zeroed, which.dialect, which.window), {});
      return answers_at(*policy, frames, {100, 300, 500}, which.window);
    };
    const Floats full = answer("");
    for (const auto& item : file.tensors()) {
      INFO(which.file << " " << item.first);
      CHECK(relative_error(answer(item.first), full) > 1e-3);
    }
  }
}

TEST_CASE("the expected windows, positions and carried states, from every file", "[host][policy][exphil]") {
  if (!test::have_exphil()) return;
  const Floats frames = test::exphil_frames();
  for (const test::ExphilSet& set : test::exphil_sets()) {
    for (const char* file : set.files) {
      INFO(file);
      const auto policy = host::make_policy(*test::exphil_policy(file), {});
      const PolicyConfig& c = policy->config();
      const std::string golden = exphil_path(set.golden), outputs = set.outputs;
      const auto ends = test::read_s32(golden, "window_ends");
      CHECK(relative_error(answers_at(*policy, frames, ends, c.spec.window),
                           test::read_f64(golden, outputs + "_f64")) <= 1e-5);

      const auto state = policy->new_state();
      Floats carried = prefill(*policy, *state, frames, 0, 300);
      Floats ssm(static_cast<std::size_t>(c.ssm_floats())), conv(static_cast<std::size_t>(c.conv_floats()));
      policy->read_state(*state, ssm.data(), conv.data());
      CHECK(relative_error(ssm, test::read_f32(golden, "ssm_after_300")) <= 1e-5);
      const Floats rest = prefill(*policy, *state, frames, 300, 300);
      carried.insert(carried.end(), rest.begin(), rest.end());
      CHECK(relative_error(carried, test::read_f32(golden, "stateful_" + outputs)) <= 1e-5);
      policy->read_state(*state, ssm.data(), conv.data());
      CHECK(relative_error(ssm, test::read_f64(golden, "ssm_after_600_f64")) <= 1e-5);
    }
  }
}

TEST_CASE("every position of a window, by prefill from zeros", "[host][policy][exphil]") {
  if (!test::have_exphil()) return;
  const Floats frames = test::exphil_frames();
  for (const test::ExphilSet& set : test::exphil_sets()) {
    INFO(set.name);
    const auto policy = host::make_policy(*test::exphil_policy(set.files[0]), {});
    const std::string golden = exphil_path(set.golden);
    const auto ends = test::read_s32(golden, "window_ends"),
               which = test::read_s32(golden, "position_windows");
    Floats positions;
    for (const std::int32_t w : which) {
      const std::int64_t window = policy->config().spec.window;
      const auto state = policy->new_state();
      const Floats outs =
          prefill(*policy, *state, frames, ends[static_cast<std::size_t>(w)] - window + 1, window);
      positions.insert(positions.end(), outs.begin(), outs.end());
    }
    CHECK(relative_error(positions, test::read_f32(golden, std::string(set.outputs) + "_by_position")) <=
          1e-5);
  }
}

TEST_CASE("dt of the channel, another chunk, warm-up frames, on the CPU", "[host][policy][exphil]") {
  if (!test::have_exphil()) return;
  const Floats frames = test::exphil_frames();
  core::PolicyLoadOptions per_channel, chunk;
  per_channel.input_dt = core::InputDt::per_channel;
  chunk.chunk_size = 16;
  const auto check = [&](const char* file, const core::PolicyLoadOptions& options, const std::string& golden,
                         const char* ends, const char* expected) {
    INFO(file << " " << expected);
    const auto policy = host::make_policy(*test::exphil_policy(file, options), {});
    const Floats got =
        answers_at(*policy, frames, test::read_s32(golden, ends), policy->config().spec.window);
    CHECK(relative_error(got, test::read_f64(golden, expected)) <= 1e-5);
  };
  const std::string mamba = exphil_path("edifice_mamba/golden.safetensors");
  const std::string brief = exphil_path("edifice_mamba2/short_window_golden.safetensors");
  const std::string full = exphil_path("exphil_policy/golden.safetensors");
  check("edifice_mamba/mamba.nx", per_channel, mamba, "window_ends", "hidden_per_channel_dt_f64");
  check("exphil_policy/policy.bin", per_channel, full, "window_ends", "logits_per_channel_dt_f64");
  check("edifice_mamba2/short_window.nx", chunk, brief, "window_ends", "hidden_chunk16_f64");
  check("exphil_policy/policy.bin", {}, full, "warmup_frames", "warmup_logits_f64");
}

TEST_CASE("steps, batches, prefill and windows of every dialect give the same bits",
          "[host][policy][exphil]") {
  if (!test::have_exphil()) return;
  const Floats frames = test::exphil_frames();
  for (const test::ExphilSet& set : test::exphil_sets()) {
    INFO(set.name);
    const auto policy = host::make_policy(*test::exphil_policy(set.files[0]), {});
    const PolicyConfig& c = policy->config();
    const auto at_once = policy->new_state(), stepped = policy->new_state(), other = policy->new_state();
    const Floats full = prefill(*policy, *at_once, frames, 0, c.spec.window);
    Floats steps;
    for (std::int64_t t = 0; t < c.spec.window; ++t) {
      // Every second time in a batch of two, where the other agent has other frames.
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
    CHECK(same_bits(steps, full));
    const Floats window =
        answers_at(*policy, frames, {static_cast<std::int32_t>(c.spec.window - 1)}, c.spec.window);
    CHECK(same_bits(window, Floats(full.end() - c.d_output, full.end())));
  }
}

// Without an input projection, without heads or with a head of one linear map, with D and a learned A:
// combinations that no file here has. The files check the oracle; this checks the CPU against it.
TEST_CASE("other combinations of the description agree with the oracle", "[host][policy][exphil]") {
  if (!test::have_exphil()) return;
  const auto base = test::exphil_policy("edifice_mamba2/short_window.nx");
  for (int form = 0; form < 16; ++form) {
    INFO("form " << form);
    core::PolicyWeights w = *base;
    test::Random random(static_cast<std::uint64_t>(form));
    core::PolicySpec& spec = w.config.spec;
    const auto model = static_cast<std::size_t>(w.config.d_model);
    if (form & 1) spec.input_projection = false, w.config.d_input = w.config.d_model, w.input_proj.clear();
    if (form & 2)
      spec.final_norm = true, w.norm_f = random.vector(model, 0.8f, 1.2f),
      w.norm_f_bias = random.vector(model, -0.5f, 0.5f);
    if (form & 4) {
      spec.input_dt = core::InputDt::per_channel;
      w.config.d_output = 5;
      w.head = random.vector(5 * model, -0.3f, 0.3f), w.head_bias = random.vector(5, -0.3f, 0.3f);
    }
    if (form & 8) {
      spec.norm = core::NormKind::rms;
      w.norm_f_bias.clear();
      for (core::PolicyLayerWeights& layer : w.layers) {
        layer.norm_bias.clear();
        layer.d = random.vector(static_cast<std::size_t>(w.config.d_inner), -1, 1);
        for (float& a : layer.a) a *= random.uniform(0.8f, 1.2f);
      }
    }
    const PolicyConfig& c = w.config;
    const auto policy = host::make_policy(w, {});
    for (const std::int64_t seq : {1, 3, 24, 40}) {
      const Floats frames = random.vector(static_cast<std::size_t>(seq * c.d_input), -1, 1);
      std::vector<double> expected(static_cast<std::size_t>(seq * c.d_output));
      core::policy_reference_window(w, frames.data(), seq, expected.data());
      Floats out(static_cast<std::size_t>(c.d_output));
      policy->window(frames.data(), 1, seq, out.data());
      CHECK(relative_error(out.data(), expected.data() + (seq - 1) * c.d_output, out.size()) <= 1e-5);
    }
  }
}

}  // namespace exphil
