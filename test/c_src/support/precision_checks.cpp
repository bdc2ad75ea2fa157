#include "support/precision_checks.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <string>

#include "core/policy/reference.hpp"
#include "core/policy/rounding.hpp"
#include "core/work/parallel.hpp"
#include "support/catch.hpp"
#include "support/exphil_data.hpp"
#include "support/melee.hpp"
#include "support/numbers.hpp"

namespace exphil::test {

namespace {

using core::PolicyWeights;
using Doubles = std::vector<double>;
using Floats = std::vector<float>;

// Outputs of the reference and of a backend for one trace, and its name.
struct Trace {
  std::string name;
  std::function<Doubles(const PolicyWeights&)> expected;
  std::function<Floats(core::Policy&)> answers;
};

constexpr std::int64_t kSomeFrames = 500;

bool whole_traces() {
  return std::getenv("EXPHIL_WHOLE_TRACES") != nullptr;
}

Match shortened(Match match) {
  if (!whole_traces()) match.frames = std::min(match.frames, kSomeFrames);
  return match;
}

// The frames of a match in the order of their arrival, each from the state before its number first came.
template <class State, class Value, class Copy, class Step>
std::vector<Value> play(const Match& match, std::unique_ptr<State> state, const Copy& copy,
                        const Step& step) {
  std::map<std::int32_t, std::unique_ptr<State>> before;
  std::vector<Value> outs;
  for (std::int64_t i = 0; i < match.frames; ++i) {
    std::unique_ptr<State>& kept = before[match.frame[static_cast<std::size_t>(i)]];
    if (kept == nullptr) {
      kept = copy(*state);
    } else {
      state = copy(*kept);
    }
    const std::vector<Value> out = step(*state, match.obs_at(i));
    outs.insert(outs.end(), out.begin(), out.end());
    while (before.size() > 16) before.erase(before.begin());
  }
  return outs;
}

Trace played(const std::string& name, const Match& match) {
  return {name,
          [match](const PolicyWeights& w) {
            using State = core::PolicyReferenceState;
            return play<State, double>(
                match, std::make_unique<State>(w.config),
                [](const State& from) { return std::make_unique<State>(from); },
                [&w](State& state, const float* obs) {
                  Doubles out(static_cast<std::size_t>(w.config.d_output));
                  core::policy_reference_step(w, state, obs, out.data());
                  return out;
                });
          },
          [match](core::Policy& policy) {
            return play<core::State, float>(
                match, policy.new_state(),
                [&policy](const core::State& from) {
                  auto copy = policy.new_state();
                  policy.copy_state(*copy, from);
                  return copy;
                },
                [&policy](core::State& state, const float* obs) {
                  Floats out(static_cast<std::size_t>(policy.config().d_output));
                  core::State* one = &state;
                  policy.step(&one, 1, obs, out.data());
                  return out;
                });
          }};
}

// The last output of each window of `seq` frames, {ends} of them.
Trace windows(const std::string& name, const Floats& frames, std::int64_t count, std::int64_t seq) {
  return {name,
          [=](const PolicyWeights& w) {
            const std::int64_t d_output = w.config.d_output;
            Doubles last, outs(static_cast<std::size_t>(seq * d_output));
            for (std::int64_t i = 0; i < count; ++i) {
              core::policy_reference_window(w, frames.data() + i * seq * w.config.d_input, seq, outs.data());
              last.insert(last.end(), outs.end() - d_output, outs.end());
            }
            return last;
          },
          [=](core::Policy& policy) {
            Floats out(static_cast<std::size_t>(count * policy.config().d_output));
            policy.window(frames.data(), count, seq, out.data());
            return out;
          }};
}

Trace carried(const std::string& name, const Floats& frames, std::int64_t seq) {
  return {name,
          [=](const PolicyWeights& w) {
            core::PolicyReferenceState state(w.config);
            Doubles outs(static_cast<std::size_t>(seq * w.config.d_output));
            for (std::int64_t t = 0; t < seq; ++t) {
              core::policy_reference_step(w, state, frames.data() + t * w.config.d_input,
                                          outs.data() + t * w.config.d_output);
            }
            return outs;
          },
          [=](core::Policy& policy) {
            const auto state = policy.new_state();
            Floats out(static_cast<std::size_t>(seq * policy.config().d_output));
            policy.prefill(*state, frames.data(), seq, out.data());
            return out;
          }};
}

// The worst row of `columns` values.
double worst_error(const Floats& got, const Doubles& expected, std::size_t columns) {
  double worst = 0;
  for (std::size_t at = 0; at < expected.size(); at += columns) {
    const double error = relative_error(got.data() + at, expected.data() + at, columns);
    worst = std::max(worst, std::isnan(error) ? INFINITY : error);
  }
  return worst;
}

// frame_by_frame: each answer is compared by itself, else all of a trace together.
void check_traces(const std::shared_ptr<const PolicyWeights>& exact, const std::vector<Trace>& traces,
                  bool frame_by_frame, const MakeRounded& make) {
  std::vector<std::shared_ptr<const PolicyWeights>> weights;
  for (const core::Precision precision : kPrecisions) {
    weights.push_back(std::make_shared<PolicyWeights>(core::rounded_weights(*exact, precision)));
  }
  const std::size_t jobs = weights.size() * traces.size();
  std::vector<Doubles> expected(jobs);  // the reference is slow: all of them in parallel
  core::parallel_for(static_cast<std::int64_t>(jobs), 1, [&](std::int64_t begin, std::int64_t end) {
    for (auto job = static_cast<std::size_t>(begin); job < static_cast<std::size_t>(end); ++job) {
      expected[job] = traces[job % traces.size()].expected(*weights[job / traces.size()]);
    }
  });
  std::size_t job = 0;
  for (const auto& w : weights) {
    const auto policy = make(w);
    for (const Trace& trace : traces) {
      CAPTURE(core::precision_name(w->config.precision), trace.name);
      const Doubles& rows = expected[job++];
      const Floats got = trace.answers(*policy);
      REQUIRE(got.size() == rows.size());
      const auto d_output = static_cast<std::size_t>(w->config.d_output);
      CHECK(worst_error(got, rows, frame_by_frame ? d_output : rows.size()) <= 1e-5);
    }
  }
}

}  // namespace

void check_melee_in_every_precision(const MakeRounded& make) {
  const Match match = melee_match();
  Windows recorded = melee_windows();
  if (!whole_traces()) recorded.end_index.resize(kSomeFrames / Windows::kLength);
  Floats frames;
  for (const std::int32_t end : recorded.end_index) {
    const float* first = match.obs_at(end + 1 - recorded.kLength);
    frames.insert(frames.end(), first, first + recorded.kLength * match.d_input);
  }
  const auto count = static_cast<std::int64_t>(recorded.end_index.size());
  check_traces(melee_policy(),
               {played("match", shortened(match)), played("rollback", shortened(melee_rollback())),
                windows("windows", frames, count, recorded.kLength)},
               true, make);
}

void check_exphil_in_every_precision(const MakeRounded& make) {
  const Floats frames = exphil_frames();
  for (const ExphilSet& set : exphil_sets()) {
    INFO(set.name);
    const auto exact = exphil_policy(set.files[0]);
    const std::int64_t seq = exact->config.window;
    Floats some;
    for (const std::int64_t first : {0, 100, 400}) {
      const auto begin = frames.begin() + first * exact->config.d_input;
      some.insert(some.end(), begin, begin + seq * exact->config.d_input);
    }
    check_traces(exact, {windows("windows", some, 3, seq), carried("carried", frames, 200)}, false, make);
  }
}

}  // namespace exphil::test
