#include "support/policy_forms.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>

#include "core/policy/reference.hpp"
#include "support/catch.hpp"
#include "support/mamba.hpp"
#include "support/numbers.hpp"
#include "support/policy.hpp"

namespace exphil::test {
namespace {

using core::PolicyWeights;
using Floats = std::vector<float>;

Floats random(std::int64_t count, float bound, std::uint64_t seed) {
  return Random(seed).vector(static_cast<std::size_t>(count), -bound, bound);
}

void layer_norm(MambaWeights& w) {
  w.config.spec.norm = core::NormKind::layer;
  std::uint64_t seed = 50;
  for (MambaLayer& layer : w.layers) layer.norm_bias = random(w.config.d_model, 0.3f, seed++);
  if (w.config.spec.final_norm) w.norm_f_bias = random(w.config.d_model, 0.3f, seed);
}

void projection_bias(MambaWeights& w) {
  std::uint64_t seed = 60;
  for (MambaLayer& layer : w.layers) {
    layer.x_proj_bias = random(w.config.dt_rank + 2 * w.config.d_state, 0.5f, seed++);
  }
}

void no_input_projection(MambaWeights& w) {
  w.config.spec.input_projection = false;
  w.config.d_input = w.config.d_model;
  w.input_proj.clear(), w.input_proj_bias.clear();
}

void clipped_dt(MambaWeights& w) {
  w.config.spec.dt_min = 0.03f, w.config.spec.dt_max = 0.2f;
}

void mean_dt(MambaWeights& w) {
  w.config.spec.input_dt = core::mamba1::InputDt::mean;
}

void no_skip(MambaWeights& w) {
  for (MambaLayer& layer : w.layers) layer.d.clear();
}

void no_final_norm(MambaWeights& w) {
  w.config.spec.final_norm = false;
  w.norm_f.clear(), w.norm_f_bias.clear();
}

void fixed_a(MambaWeights& w) {
  for (MambaLayer& layer : w.layers) layer.a_log.clear();
}

// Carried states decay their inputs, and windows of up to 6 frames.
void short_chunks(MambaWeights& w) {
  w.config.spec.window = 4, w.config.spec.chunk_size = 6;
}

// Windows of up to 6 frames alone.
void long_window(MambaWeights& w) {
  w.config.spec.window = 60, w.config.spec.chunk_size = 6;
}

// ExPhil's six, with few bins.
void heads(MambaWeights& w) {
  core::mamba1::Config& c = w.config;
  w.head.clear(), w.head_bias.clear();
  c.d_output = 0;
  std::uint64_t seed = 70;
  for (const char* name : {"buttons", "main_x", "main_y", "c_x", "c_y", "shoulder"}) {
    const std::int64_t count = c.groups.empty() ? 8 : 3, width = 7 + 3 * count;
    MambaHead head;
    head.hidden = random(width * c.d_model, 0.5f, seed++), head.hidden_bias = random(width, 0.5f, seed++);
    head.out = random(count * width, 0.5f, seed++), head.out_bias = random(count, 0.5f, seed++);
    c.groups.push_back({name, c.d_output, count});
    c.d_output += count;
    w.heads.push_back(head);
  }
}

void bare(MambaWeights& w) {
  w.head.clear(), w.head_bias.clear();
  w.config.d_output = w.config.d_model;
}

void edifice(MambaWeights& w) {
  for (const auto& change :
       {projection_bias, clipped_dt, mean_dt, no_skip, no_final_norm, fixed_a, layer_norm}) {
    change(w);
  }
}

bool same_bits(const float* p, const float* q, std::int64_t count) {
  return std::memcmp(p, q, static_cast<std::size_t>(count) * sizeof(float)) == 0;
}

// In 16 bits a state next to the middle of two values may be rounded to the other one than the reference's.
double bound_of(core::Precision states) {
  return states == core::Precision::f32 ? 1e-5 : states == core::Precision::f16 ? 2e-4 : 2e-3;
}

class FormCheck {
 public:
  FormCheck(core::Policy& policy, const PolicyWeights& weights, std::int64_t frames)
      : bound_(bound_of(weights.config.states)),
        policy_(policy),
        weights_(weights),
        config_(policy.config()),
        frames_(frames),
        obs_(random(frames * config_.d_input, 1, 3)) {}

  void steps() {
    core::PolicyReferenceState reference(config_);
    const auto state = policy_.new_state();
    std::vector<double> expected;
    for (std::int64_t t = 0; t < frames_; ++t) {
      std::vector<double> row(static_cast<std::size_t>(config_.d_output));
      core::policy_reference_step(weights_, reference, obs_at(t), row.data());
      expected.insert(expected.end(), row.begin(), row.end());
      const Floats out = step(*state, obs_at(t));
      stepped_.insert(stepped_.end(), out.begin(), out.end());
    }
    CHECK(relative_error(stepped_, expected) <= bound_);
    last_ = read(*state);
    CHECK(relative_error(last_, reference.values) <= bound_);
  }

  void prefill() {
    for (const std::int64_t cut : {std::int64_t{0}, std::int64_t{1}, frames_ / 2}) {
      const auto state = policy_.new_state();
      Floats out(stepped_.size());
      policy_.prefill(*state, obs_.data(), cut, out.data());
      policy_.prefill(*state, obs_at(cut), frames_ - cut, out.data() + cut * config_.d_output);
      CHECK(same_bits(out.data(), stepped_.data(), static_cast<std::int64_t>(out.size())));
      CHECK(read(*state) == last_);
    }
  }

  // Two windows of each length together; where they follow the carried recurrence, the bits of the steps.
  void windows() {
    for (const std::int64_t seq :
         {std::int64_t{1}, std::int64_t{4}, std::int64_t{6}, std::int64_t{7}, frames_ - 1}) {
      CAPTURE(seq);
      Floats two(obs_.begin(), obs_.begin() + seq * config_.d_input);
      two.insert(two.end(), obs_at(1), obs_at(1 + seq));
      Floats out(2 * static_cast<std::size_t>(config_.d_output)), alone(out.size() / 2);
      policy_.window(two.data(), 2, seq, out.data());
      policy_.window(obs_at(1), 1, seq, alone.data());
      CHECK(same_bits(alone.data(), out.data() + config_.d_output, config_.d_output));
      for (std::int64_t i = 0; i < 2; ++i) {
        std::vector<double> expected(static_cast<std::size_t>(seq * config_.d_output));
        core::policy_reference_window(weights_, obs_at(i), seq, expected.data());
        CHECK(relative_error(out.data() + i * config_.d_output,
                             expected.data() + (seq - 1) * config_.d_output, alone.size()) <= bound_);
      }
      if (decays_input(config_.network, seq) == decays_input(config_.network, config_.window)) {
        CHECK(same_bits(out.data(), stepped_.data() + (seq - 1) * config_.d_output, config_.d_output));
      }
    }
  }

  // Windows from a ring that wraps around, one and several at a time, with a new frame or with all frames
  // new.
  void rings(std::int64_t seq) {
    CAPTURE(seq);
    const std::int64_t slots = seq + 3;
    const auto ring = policy_.new_ring(slots);
    std::int64_t put = 0, begin = 0;
    for (int call = 0; begin + seq <= frames_; ++call) {
      core::RingWindows windows;
      windows.seq = seq;
      windows.first = begin % slots;
      windows.count = std::min<std::int64_t>(call % 3 == 1 ? 3 : 1, frames_ - begin - seq + 1);
      const std::int64_t all = seq + windows.count - 1;
      windows.fresh = call % 4 == 3 ? all : begin + all - put;
      windows.obs = obs_at(begin + all - windows.fresh);
      Floats out(static_cast<std::size_t>(windows.count * config_.d_output), std::nanf(""));
      ring->answer(windows, out.data());
      for (std::int64_t i = 0; i < windows.count; ++i) {
        Floats alone(static_cast<std::size_t>(config_.d_output));
        policy_.window(obs_at(begin + i), 1, seq, alone.data());
        CHECK(same_bits(alone.data(), out.data() + i * config_.d_output, config_.d_output));
      }
      put = begin + all;
      begin += windows.count;
    }
  }

  // Windows of several agents in one call, frame by frame, where some agents are as many frames ahead. Every
  // third frame of an agent goes through its ring alone, which may lack the frames before it.
  void rings_together(std::int64_t count, std::int64_t seq) {
    CAPTURE(count, seq);
    std::vector<std::unique_ptr<core::FrameRing>> rings;
    std::vector<std::int64_t> held(
        static_cast<std::size_t>(count));  // frames before this one are in the ring
    for (std::int64_t i = 0; i < count; ++i) rings.push_back(policy_.new_ring(seq + 1));
    for (std::int64_t t = 0; t + seq + 2 < frames_; ++t) {
      std::vector<core::AgentWindow> windows(static_cast<std::size_t>(count));
      for (std::int64_t i = 0; i < count; ++i) {
        core::AgentWindow& window = windows[static_cast<std::size_t>(i)];
        const std::int64_t begin = t + i % 3, end = begin + seq;
        window.ring = rings[static_cast<std::size_t>(i)].get();
        window.frames = obs_at(begin);
        window.ring_windows.first = begin % (seq + 1);
        window.ring_windows.seq = seq;
        window.ring_windows.fresh = std::min(seq, end - held[static_cast<std::size_t>(i)]);
        window.ring_windows.obs = obs_at(end - window.ring_windows.fresh);
      }
      Floats out(static_cast<std::size_t>(count * config_.d_output), std::nanf(""));
      if (t % 3 == 2) {
        for (std::int64_t i = 0; i < count; ++i) {
          core::AgentWindow& window = windows[static_cast<std::size_t>(i)];
          window.ring->answer(window.ring_windows, out.data() + i * config_.d_output);
          window.in_ring = true;
        }
      } else {
        policy_.answer_windows(windows.data(), count, out.data());
      }
      for (std::int64_t i = 0; i < count; ++i) {
        Floats alone(static_cast<std::size_t>(config_.d_output));
        policy_.window(obs_at(t + i % 3), 1, seq, alone.data());
        CHECK(same_bits(alone.data(), out.data() + i * config_.d_output, config_.d_output));
        if (windows[static_cast<std::size_t>(i)].in_ring) held[static_cast<std::size_t>(i)] = t + i % 3 + seq;
      }
    }
  }

  // Agents that saw different frames, stepped together and alone.
  void batch(std::int64_t count) {
    CAPTURE(count);
    std::vector<std::unique_ptr<core::State>> together, alone;
    std::vector<core::State*> pointers;
    Floats obs;
    for (std::int64_t i = 0; i < count; ++i) {
      for (auto* states : {&together, &alone}) {
        states->push_back(policy_.new_state());
        step(*states->back(), obs_at(i % frames_));
      }
      pointers.push_back(together.back().get());
      obs.insert(obs.end(), obs_at((i + 1) % frames_), obs_at((i + 1) % frames_) + config_.d_input);
    }
    Floats out(static_cast<std::size_t>(count * config_.d_output));
    policy_.step(pointers.data(), count, obs.data(), out.data());
    bool same = true;
    for (std::int64_t i = 0; i < count; ++i) {
      const auto at = static_cast<std::size_t>(i);
      const Floats single = step(*alone[at], obs.data() + i * config_.d_input);
      same = same && same_bits(single.data(), out.data() + i * config_.d_output, config_.d_output) &&
             read(*together[at]) == read(*alone[at]);
    }
    CHECK(same);
  }

 private:
  const float* obs_at(std::int64_t t) const { return obs_.data() + t * config_.d_input; }

  Floats step(core::State& state, const float* obs) {
    Floats out(static_cast<std::size_t>(config_.d_output), std::nanf(""));
    core::State* pointer = &state;
    policy_.step(&pointer, 1, obs, out.data());
    return out;
  }

  Floats read(const core::State& state) {
    Floats all(static_cast<std::size_t>(config_.state_floats()));
    policy_.read_state(state, all.data());
    return all;
  }

  const double bound_;
  core::Policy& policy_;
  const PolicyWeights& weights_;
  const core::PolicyConfig& config_;
  const std::int64_t frames_;
  const Floats obs_;
  Floats stepped_, last_;
};

}  // namespace

std::vector<PolicyForm> policy_forms(const PolicySpec& spec) {
  std::vector<PolicyForm> all;
  const auto add = [&](const char* name, const std::vector<std::function<void(MambaWeights&)>>& changes) {
    MambaWeights weights = mamba_weights(*make_policy(spec));
    for (const auto& change : changes) change(weights);
    all.push_back({name, std::make_shared<PolicyWeights>(described(weights))});
  };
  add("state_spaces", {});
  add("layer_norm", {layer_norm});
  add("projection_bias", {projection_bias});
  add("no_input_projection", {no_input_projection});
  add("clipped_dt", {clipped_dt});
  add("mean_dt", {mean_dt});
  add("no_skip", {no_skip});
  add("no_final_norm", {no_final_norm});
  add("fixed_a", {fixed_a});
  add("short_chunks", {short_chunks});
  add("short_chunks_of_mean_dt", {short_chunks, mean_dt});
  add("long_window", {long_window});
  add("heads", {heads});
  add("heads_after_layer_norm", {layer_norm, heads});
  add("bare", {bare});
  add("bare_after_layer_norm", {layer_norm, bare, no_input_projection});
  add("edifice", {edifice, bare});
  add("edifice_of_one_size", {edifice, bare, no_input_projection, long_window});
  add("exphil", {edifice, heads});
  return all;
}

void check_policy_form(core::Policy& policy, const PolicyWeights& weights, std::int64_t frames,
                       const std::vector<std::int64_t>& batches) {
  FormCheck check(policy, weights, frames);
  check.steps();
  check.prefill();
  check.windows();
  for (const std::int64_t seq : {std::int64_t{1}, std::int64_t{4}, frames - 3}) check.rings(seq);
  for (const std::int64_t count : {3, 12}) check.rings_together(count, 4);
  for (const std::int64_t count : batches) check.batch(count);
}

}  // namespace exphil::test
