// The oracle against the outputs of Edifice and ExPhil: float64 ones to 1e-7 (the bounds of dt are f32 here),
// Axon's f32 ones to 1e-5.
#include <cmath>

#include "core/policy/reference.hpp"
#include "support/catch.hpp"
#include "support/exphil_data.hpp"
#include "support/mamba.hpp"
#include "support/numbers.hpp"

namespace exphil {

namespace {

using core::PolicyWeights;
using test::exphil_path;
using test::relative_error;

using Doubles = std::vector<double>;

// The outputs at every position of the window that ends at row `end`; rows before 0 are copies of row 0.
Doubles window_at(const PolicyWeights& weights, const std::vector<float>& frames, std::int64_t end,
                  std::int64_t seq) {
  const std::int64_t width = weights.config.d_input;
  std::vector<float> window;
  for (std::int64_t t = end - seq + 1; t <= end; ++t) {
    const auto row = frames.begin() + std::max<std::int64_t>(t, 0) * width;
    window.insert(window.end(), row, row + width);
  }
  Doubles outs(static_cast<std::size_t>(seq * weights.config.d_output));
  core::policy_reference_window(weights, window.data(), seq, outs.data());
  return outs;
}

// The last outputs of the windows that end at `ends`.
Doubles last_answers(const PolicyWeights& weights, const std::vector<float>& frames,
                     const std::vector<std::int32_t>& ends) {
  Doubles all;
  for (const std::int32_t end : ends) {
    const Doubles outs = window_at(weights, frames, end, weights.config.window);
    all.insert(all.end(), outs.end() - weights.config.d_output, outs.end());
  }
  return all;
}

template <class T>
std::vector<T> rows(const std::vector<T>& from, std::int64_t first, std::int64_t count) {
  return {from.begin() + first, from.begin() + first + count};
}

}  // namespace

TEST_CASE("the oracle gives the expected windows, positions and carried states",
          "[policy_reference][exphil]") {
  if (!test::have_exphil()) return;
  const std::vector<float> frames = test::exphil_frames();
  for (const test::ExphilSet& set : test::exphil_sets()) {
    INFO(set.name);
    const auto weights = test::exphil_policy(set.files[0]);
    const core::PolicyConfig& c = weights->config;
    const std::string golden = exphil_path(set.golden), outputs = set.outputs;
    const auto ends = test::read_s32(golden, "window_ends");
    const Doubles answers = last_answers(*weights, frames, ends);
    CHECK(relative_error(answers, test::read_f64(golden, outputs + "_f64")) < 1e-7);
    CHECK(relative_error(answers, test::read_f32(golden, outputs + "_axon")) < 1e-5);

    const auto expected = test::read_f32(golden, outputs + "_by_position");
    const auto which = test::read_s32(golden, "position_windows");
    Doubles positions;
    for (const std::int32_t w : which) {
      const Doubles outs = window_at(*weights, frames, ends[static_cast<std::size_t>(w)], c.window);
      positions.insert(positions.end(), outs.begin(), outs.end());
    }
    CHECK(relative_error(positions, expected) < 1e-6);

    core::PolicyReferenceState state(c);
    Doubles carried(static_cast<std::size_t>(600 * c.d_output));
    for (std::int64_t t = 0; t < 600; ++t) {
      core::policy_reference_step(*weights, state, frames.data() + t * c.d_input,
                                  carried.data() + t * c.d_output);
      if (t != 299) continue;
      CHECK(relative_error(test::parts_of(c, state.values, "ssm"), test::read_f32(golden, "ssm_after_300")) <
            1e-6);
    }
    CHECK(relative_error(carried, test::read_f32(golden, "stateful_" + outputs)) < 1e-6);
    CHECK(relative_error(test::parts_of(c, state.values, "ssm"),
                         test::read_f64(golden, "ssm_after_600_f64")) < 1e-7);
    const Doubles conv = test::turned(c, test::read_f64(golden, "conv_after_600_f64"));
    CHECK(relative_error(test::parts_of(c, state.values, "conv"), conv) < 1e-7);
  }
}

TEST_CASE("the oracle: dt of the channel, another chunk, warm-up frames", "[policy_reference][exphil]") {
  if (!test::have_exphil()) return;
  const std::vector<float> frames = test::exphil_frames();
  core::PolicyLoadOptions per_channel;
  per_channel.trunk = {{"dt", "per_channel"}};
  for (const int index : {0, 3}) {
    const test::ExphilSet set = test::exphil_sets()[static_cast<std::size_t>(index)];
    const std::string golden = exphil_path(set.golden);
    const auto weights = test::exphil_policy(set.files[0], per_channel);
    const Doubles answers = last_answers(*weights, frames, test::read_s32(golden, "window_ends"));
    CHECK(relative_error(answers, test::read_f64(golden, std::string(set.outputs) + "_per_channel_dt_f64")) <
          1e-7);
  }
  core::PolicyLoadOptions chunk;
  chunk.trunk = {{"chunk_size", std::int64_t{16}}};
  const std::string golden = exphil_path("edifice_mamba2/short_window_golden.safetensors");
  const auto chunked = test::exphil_policy("edifice_mamba2/short_window.nx", chunk);
  const auto ends = test::read_s32(golden, "window_ends");
  CHECK(relative_error(last_answers(*chunked, frames, ends), test::read_f64(golden, "hidden_chunk16_f64")) <
        1e-7);

  const std::string policy = exphil_path("exphil_policy/golden.safetensors");
  const auto weights = test::exphil_policy("exphil_policy/policy.bin");
  const Doubles warm = last_answers(*weights, frames, test::read_s32(policy, "warmup_frames"));
  CHECK(relative_error(warm, test::read_f64(policy, "warmup_logits_f64")) < 1e-7);
}

}  // namespace exphil
