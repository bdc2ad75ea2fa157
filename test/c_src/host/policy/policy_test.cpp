// The resident policy on the CPU: the recorded match, and the bit-for-bit guarantees of
// core/policy/policy.hpp.
#include "host/policy/policy.hpp"

#include <chrono>
#include <cmath>
#include <cstring>
#include <map>
#include <thread>

#include "core/policy/reference.hpp"
#include "core/work/parallel.hpp"
#include "host/simd/targets.hpp"
#include "support/catch.hpp"
#include "support/melee.hpp"
#include "support/numbers.hpp"
#include "support/policy.hpp"

namespace exphil {

namespace {

using core::Policy;
using core::PolicyConfig;
using core::State;
using test::relative_error;

using Floats = std::vector<float>;

Floats floats(std::int64_t count) {
  return Floats(static_cast<std::size_t>(count), std::nanf(""));
}

bool same_bits(const Floats& p, const Floats& q) {
  return p.size() == q.size() &&
         (p.empty() || std::memcmp(p.data(), q.data(), p.size() * sizeof(float)) == 0);
}

struct Values {
  Floats all;
  bool operator==(const Values& other) const { return same_bits(all, other.all); }
};

Values read(Policy& policy, const State& state) {
  Values values{floats(policy.config().state_floats())};
  policy.read_state(state, values.all.data());
  return values;
}

Floats step(Policy& policy, State& state, const float* obs) {
  Floats out = floats(policy.config().d_output);
  State* pointer = &state;
  policy.step(&pointer, 1, obs, out.data());
  return out;
}

Floats prefill(Policy& policy, State& state, const float* frames, std::int64_t seq) {
  Floats out = floats(seq * policy.config().d_output);
  policy.prefill(state, frames, seq, out.data());
  return out;
}

Floats observations(const PolicyConfig& config, std::int64_t frames, std::uint64_t seed = 3) {
  return test::Random(seed).vector(static_cast<std::size_t>(frames * config.d_input), -1, 1);
}

// Sizes below and above every panel and tile, and the smallest convolutions.
std::vector<test::PolicySpec> specs() {
  std::vector<test::PolicySpec> all(7);
  all[1].d_input = 1, all[1].d_output = 1, all[1].d_model = 1, all[1].d_inner = 1, all[1].n_layer = 1;
  all[1].d_state = 1, all[1].d_conv = 1, all[1].dt_rank = 1;
  all[2].d_model = 16, all[2].d_inner = 32, all[2].d_state = 16, all[2].dt_rank = 1, all[2].d_conv = 2;
  all[3].d_model = 17, all[3].d_inner = 33, all[3].d_state = 7, all[3].projection_bias = true;
  all[4].d_model = 40, all[4].d_inner = 100, all[4].d_state = 17, all[4].n_layer = 3,
  all[4].conv_bias = false;
  all[5].d_model = 31, all[5].d_inner = 64, all[5].d_state = 33, all[5].d_output = 35, all[5].d_conv = 7;
  // Large enough that threads share one pass.
  all[6].d_input = 50, all[6].d_model = 100, all[6].d_inner = 200, all[6].n_layer = 3, all[6].d_output = 40;
  for (std::size_t i = 0; i < all.size(); ++i) all[i].seed = i + 1;
  return all;
}

// The worst error of a frame, and the number of frames.
struct Worst {
  double error = 0;
  void add(double next) { error = std::max(error, std::isnan(next) ? INFINITY : next); }
};

}  // namespace

TEST_CASE("the recorded match, frame by frame, on every SIMD target", "[host][policy][melee]") {
  if (!test::have_melee()) return;
  const test::Match match = test::melee_match();
  const auto policy = host::make_policy(*test::melee_policy(), {});
  test::for_each_target([&] {
    INFO(host::simd_target());
    // The baseline has no SIMD: it plays half a minute of the match only.
    const bool baseline = std::string(host::simd_target()) == hwy::TargetName(HWY_STATIC_TARGET);
    const std::int64_t frames = baseline ? 300 : match.frames;
    const auto state = policy->new_state();
    Worst worst;
    for (std::int64_t i = 0; i < frames; ++i) {
      const Floats out = step(*policy, *state, match.obs_at(i));
      worst.add(relative_error(out.data(), match.logits_at(i), out.size()));
    }
    CHECK(worst.error <= 1e-5);
    if (frames != match.frames) return;
    const Values last = read(*policy, *state);
    CHECK(relative_error(last.all, match.state()) <= 1e-5);
  });
}

TEST_CASE("the rollback trace: restored from the frame before", "[host][policy][melee]") {
  if (!test::have_melee()) return;
  const test::Match trace = test::melee_rollback();
  const auto policy = host::make_policy(*test::melee_policy(), {});
  const auto state = policy->new_state();
  std::map<std::int32_t, std::unique_ptr<State>> before;
  std::map<std::int32_t, Floats> first_answer;
  Worst worst;
  std::int64_t restored = 0;
  for (std::int64_t i = 0; i < trace.frames; ++i) {
    const std::int32_t frame = trace.frame[static_cast<std::size_t>(i)];
    const auto kept = before.find(frame);
    if (kept != before.end()) {
      policy->copy_state(*state, *kept->second);
      ++restored;
    } else {
      before[frame] = policy->new_state();
      policy->copy_state(*before[frame], *state);
    }
    const Floats out = step(*policy, *state, trace.obs_at(i));
    worst.add(relative_error(out.data(), trace.logits_at(i), out.size()));
  }
  CHECK(restored > 500);
  CHECK(worst.error <= 1e-5);
}

TEST_CASE("zero-state windows of the match", "[host][policy][melee]") {
  if (!test::have_melee()) return;
  const test::Match match = test::melee_match();
  const test::Windows windows = test::melee_windows();
  const auto policy = host::make_policy(*test::melee_policy(), {});
  const auto count = static_cast<std::int64_t>(windows.end_index.size());
  Floats frames;
  for (const std::int32_t end : windows.end_index) {
    const float* first = match.obs_at(end + 1 - windows.kLength);
    frames.insert(frames.end(), first, first + windows.kLength * match.d_input);
  }
  Floats out = floats(count * match.d_output);
  policy->window(frames.data(), count, windows.kLength, out.data());
  Worst worst;
  for (std::int64_t i = 0; i < count; ++i) {
    worst.add(relative_error(out.data() + i * match.d_output, windows.logits.data() + i * match.d_output,
                             static_cast<std::size_t>(match.d_output)));
  }
  CHECK(worst.error <= 1e-5);
  // One window alone is split over the threads: the same bits.
  for (std::int64_t i = 0; i < count; i += 13) {
    Floats single = floats(match.d_output);
    policy->window(frames.data() + i * windows.kLength * match.d_input, 1, windows.kLength, single.data());
    CHECK(std::memcmp(single.data(), out.data() + i * match.d_output, single.size() * sizeof(float)) == 0);
  }
}

TEST_CASE("policies of every shape agree with the oracle on every SIMD target", "[host][policy]") {
  for (const test::PolicySpec& spec : specs()) {
    const auto weights = test::make_policy(spec);
    const auto policy = host::make_policy(*weights, {});
    const PolicyConfig& config = policy->config();
    const std::int64_t frames = 20;
    const Floats obs = observations(config, frames);
    test::for_each_target([&] {
      INFO(host::simd_target() << " policy " << spec.seed);
      core::PolicyReferenceState reference(config);
      const auto state = policy->new_state();
      std::vector<double> expected(static_cast<std::size_t>(config.d_output));
      Worst worst;
      for (std::int64_t t = 0; t < frames; ++t) {
        core::policy_reference_step(*weights, reference, obs.data() + t * config.d_input, expected.data());
        const Floats out = step(*policy, *state, obs.data() + t * config.d_input);
        worst.add(relative_error(out.data(), expected.data(), expected.size()));
      }
      CHECK(worst.error <= 1e-5);
      const Values last = read(*policy, *state);
      CHECK(relative_error(last.all, reference.values) <= 1e-5);
    });
  }
}

TEST_CASE("stepping, prefill and every split give the same bits", "[host][policy]") {
  for (const test::PolicySpec& spec : specs()) {
    INFO("policy " << spec.seed);
    const auto policy = host::make_policy(*test::make_policy(spec), {});
    const PolicyConfig& config = policy->config();
    const std::int64_t longest = 130;
    const Floats obs = observations(config, longest);
    const auto stepped = policy->new_state();
    Floats outs;
    for (std::int64_t seq = 0; seq <= longest; ++seq) {
      const auto full = policy->new_state(), split = policy->new_state();
      bool same = same_bits(prefill(*policy, *full, obs.data(), seq), outs);
      same = same && read(*policy, *full) == read(*policy, *stepped);
      const std::int64_t cut = seq * 37 % (seq + 1);
      Floats parts = prefill(*policy, *split, obs.data(), cut);
      const Floats rest = prefill(*policy, *split, obs.data() + cut * config.d_input, seq - cut);
      parts.insert(parts.end(), rest.begin(), rest.end());
      same = same && same_bits(parts, outs) && read(*policy, *split) == read(*policy, *stepped);
      if (seq > 0) {
        Floats last = floats(config.d_output);
        policy->window(obs.data(), 1, seq, last.data());
        same = same && std::memcmp(last.data(), outs.data() + (seq - 1) * config.d_output,
                                   last.size() * sizeof(float)) == 0;
      }
      CHECK(same);
      if (seq == longest) break;
      const Floats out = step(*policy, *stepped, obs.data() + seq * config.d_input);
      outs.insert(outs.end(), out.begin(), out.end());
    }
  }
}

TEST_CASE("a batch of agents equals separate steps bit for bit", "[host][policy]") {
  const auto policy = host::make_policy(*test::make_policy(specs()[GENERATE(0, 3, 4, 6)]), {});
  const PolicyConfig& config = policy->config();
  for (const std::int64_t count : {1, 2, 3, 7, 8, 9, 63, 64, 65, 200}) {
    INFO(count);
    std::vector<std::unique_ptr<State>> batched, alone;
    std::vector<State*> pointers;
    for (std::int64_t i = 0; i < count; ++i) {
      batched.push_back(policy->new_state());
      alone.push_back(policy->new_state());
    }
    for (std::int64_t i = count; i-- > 0;) pointers.push_back(batched[static_cast<std::size_t>(i)].get());
    bool same = true;
    for (std::uint64_t frame = 0; frame < 3; ++frame) {
      const Floats obs = observations(config, count, frame + 10);
      Floats out = floats(count * config.d_output);
      policy->step(pointers.data(), count, obs.data(), out.data());
      for (std::int64_t i = 0; i < count; ++i) {
        State& own = *alone[static_cast<std::size_t>(count - 1 - i)];
        const Floats single = step(*policy, own, obs.data() + i * config.d_input);
        same = same && std::memcmp(single.data(), out.data() + i * config.d_output,
                                   single.size() * sizeof(float)) == 0;
      }
    }
    for (std::size_t i = 0; i < batched.size(); ++i) {
      same = same && read(*policy, *batched[i]) == read(*policy, *alone[i]);
    }
    CHECK(same);
  }
}

TEST_CASE("one thread and several give the same bits", "[host][policy]") {
  const auto policy = host::make_policy(*test::make_policy(specs()[GENERATE(4, 6)]), {});
  const PolicyConfig& config = policy->config();
  const Floats obs = observations(config, 6 * 100);
  const auto run = [&](int threads) {
    core::set_threads(threads);
    const auto state = policy->new_state();
    Floats out = prefill(*policy, *state, obs.data(), 600);
    Floats windows = floats(6 * config.d_output);
    policy->window(obs.data(), 6, 100, windows.data());
    out.insert(out.end(), windows.begin(), windows.end());
    policy->window(obs.data(), 1, 100, windows.data());
    out.insert(out.end(), windows.begin(), windows.begin() + config.d_output);
    // Threads share back-to-back steps, but not those after a pause.
    for (std::int64_t t = 0; t < 50; ++t) {
      if (t % 25 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
      const Floats next = step(*policy, *state, obs.data() + t * config.d_input);
      out.insert(out.end(), next.begin(), next.end());
    }
    core::set_threads(0);
    return out;
  };
  const Floats one = run(1);
  CHECK(same_bits(run(2), one));
  CHECK(same_bits(run(5), one));
}

TEST_CASE("states are copied, written and counted exactly", "[host][policy]") {
  const auto policy = host::make_policy(*test::make_policy(specs()[5]), {});
  const PolicyConfig& config = policy->config();
  const std::size_t empty = policy->resident_bytes();
  CHECK(empty > 0);
  const Floats obs = observations(config, 30);
  auto state = policy->new_state(), copy = policy->new_state(), written = policy->new_state();
  const Values zeros = read(*policy, *state);
  CHECK(zeros.all == Floats(zeros.all.size(), 0.0f));
  CHECK(policy->resident_bytes() - empty >= 3 * zeros.all.size() * sizeof(float));

  (void)prefill(*policy, *state, obs.data(), 20);
  const Values values = read(*policy, *state);
  policy->copy_state(*copy, *state);
  policy->write_state(*written, values.all.data());
  CHECK(read(*policy, *copy) == values);
  CHECK(read(*policy, *written) == values);
  const Floats expected = prefill(*policy, *state, obs.data() + 20 * config.d_input, 10);
  CHECK(same_bits(prefill(*policy, *copy, obs.data() + 20 * config.d_input, 10), expected));
  CHECK(same_bits(prefill(*policy, *written, obs.data() + 20 * config.d_input, 10), expected));
  CHECK(read(*policy, *copy) == read(*policy, *state));

  state.reset(), copy.reset(), written.reset();
  CHECK(policy->resident_bytes() == empty);
}

TEST_CASE("calls on different states run concurrently", "[host][policy]") {
  const auto policy = host::make_policy(*test::make_policy(specs()[GENERATE(4, 6)]), {});
  const PolicyConfig& config = policy->config();
  constexpr std::int64_t kFrames = 60;
  constexpr std::size_t kThreads = 4;
  std::vector<Floats> expected, got(kThreads);
  for (std::size_t i = 0; i < kThreads; ++i) {
    const auto state = policy->new_state();
    expected.push_back(prefill(*policy, *state, observations(config, kFrames, i).data(), kFrames));
  }
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      const Floats obs = observations(config, kFrames, i);
      const auto state = policy->new_state();
      for (std::int64_t t = 0; t < kFrames; ++t) {
        const Floats out = step(*policy, *state, obs.data() + t * config.d_input);
        got[i].insert(got[i].end(), out.begin(), out.end());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (std::size_t i = 0; i < kThreads; ++i) CHECK(same_bits(got[i], expected[i]));
}

TEST_CASE("a state may outlive its model", "[host][policy]") {
  auto policy = host::make_policy(*test::make_policy(specs()[0]), {});
  const auto state = policy->new_state();
  policy.reset();
}

}  // namespace exphil
