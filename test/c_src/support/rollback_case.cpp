#include "support/rollback_case.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "support/catch.hpp"
#include "support/numbers.hpp"

namespace exphil::test {

namespace {

using core::Session;
using Floats = std::vector<float>;

// A session, and the frames that led to its state: those before each of its recorded frames are its history.
struct Agent {
  std::unique_ptr<Session> session;
  core::SessionOptions options;
  std::vector<int> frames;   // by number, since the session began or was restored to `base`
  std::size_t recorded = 0;  // how far it can go back
  std::unique_ptr<core::Snapshot> kept;
  std::vector<int> kept_frames;
};

class RandomRollbacks {
 public:
  RandomRollbacks(std::shared_ptr<core::Policy> policy, std::uint64_t seed)
      : policy_(std::move(policy)), random_(seed) {
    const core::PolicyConfig& c = policy_->config();
    d_input_ = static_cast<std::size_t>(c.d_input), d_output_ = static_cast<std::size_t>(c.d_output);
    frames_ = random_.vector(kFrames * d_input_, -1.0f, 1.0f);
    for (int i = 0; i < kAgents; ++i) {
      Agent agent;
      agent.options.history = 1 + i % 9;
      agent.options.window = i % 4 == 3 ? 3 + i % 3 : 0;
      agent.options.pad = i % 8 == 3 ? core::Pad::none : core::Pad::repeat;
      agent.session = std::make_unique<Session>(policy_, agent.options);
      agents_.push_back(std::move(agent));
    }
  }

  void run(std::int64_t operations) {
    for (std::int64_t i = 0; i < operations && sound_; ++i) {
      Agent& agent = agents_[pick(kAgents)];
      // Long lives would make each replay long: an agent sometimes starts again.
      if (agent.frames.size() > 60) begin_again(agent);
      operate(agent);
    }
    for (Agent& agent : agents_) check_state(agent);
    CHECK(sound_);
  }

 private:
  static constexpr int kAgents = 32, kFrames = 40;

  std::size_t pick(std::size_t count) { return static_cast<std::size_t>(random_.bits() % count); }

  Floats rows(const std::vector<int>& numbers) const {
    Floats all;
    for (const int number : numbers) {
      const auto at =
          frames_.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(number) * d_input_);
      all.insert(all.end(), at, at + static_cast<std::ptrdiff_t>(d_input_));
    }
    return all;
  }

  std::vector<int> some_frames(std::size_t count) {
    std::vector<int> numbers(count);
    for (int& number : numbers) number = static_cast<int>(pick(kFrames));
    return numbers;
  }

  void begin_again(Agent& agent) {
    agent.session = std::make_unique<Session>(policy_, agent.options);
    agent.frames.clear(), agent.recorded = 0;
  }

  // The agent's next frames were these; the last of `outs` must be what a session that only steps answers.
  void played(Agent& agent, const std::vector<int>& numbers, const Floats& outs, bool recorded) {
    agent.frames.insert(agent.frames.end(), numbers.begin(), numbers.end());
    const auto history = static_cast<std::size_t>(agent.options.history);
    agent.recorded = recorded ? std::min(history, agent.recorded + numbers.size()) : 0;
    core::SessionOptions plain = agent.options;
    plain.history = 0;
    Session replay(policy_, plain);
    Floats all(agent.frames.size() * d_output_);
    const Floats obs = rows(agent.frames);
    for (std::size_t t = 0; t < agent.frames.size(); ++t) {
      replay.step(obs.data() + t * d_input_, all.data() + t * d_output_);
    }
    const float* last = all.data() + all.size() - outs.size();
    sound_ = sound_ && (outs.empty() || std::memcmp(last, outs.data(), outs.size() * 4) == 0);
    sound_ = sound_ && replay.export_state() == agent.session->export_state();
  }

  void check_state(Agent& agent) {
    const std::vector<int> next = some_frames(1);
    step(agent, next);
  }

  void step(Agent& agent, const std::vector<int>& numbers) {
    Floats out(d_output_);
    agent.session->step(rows(numbers).data(), out.data());
    played(agent, numbers, out, true);
  }

  void step_both(Agent& agent) {
    Agent& other = agents_[pick(kAgents)];
    if (&other == &agent) return;
    const std::vector<int> numbers = some_frames(2);
    Floats out(2 * d_output_);
    Session::step_batch({agent.session.get(), other.session.get()}, rows(numbers).data(), out.data());
    const auto half = out.begin() + static_cast<std::ptrdiff_t>(d_output_);
    played(agent, {numbers[0]}, Floats(out.begin(), half), true);
    played(other, {numbers[1]}, Floats(half, out.end()), true);
  }

  void go_back(Agent& agent, std::size_t frames) {
    agent.frames.resize(agent.frames.size() - frames);
    agent.recorded -= frames;
  }

  void resimulate(Agent& agent) {
    const std::size_t back = pick(agent.recorded + 1);
    const std::vector<int> numbers = some_frames(pick(static_cast<std::size_t>(agent.options.history) + 1));
    Floats outs(numbers.size() * d_output_);
    agent.session->resimulate(static_cast<std::int64_t>(back), rows(numbers).data(),
                              static_cast<std::int64_t>(numbers.size()), outs.data());
    go_back(agent, back);
    played(agent, numbers, outs, true);
  }

  void prefill(Agent& agent) {
    const std::vector<int> numbers = some_frames(1 + pick(5));
    Floats outs(numbers.size() * d_output_);
    agent.session->prefill(rows(numbers).data(), static_cast<std::int64_t>(numbers.size()), outs.data());
    played(agent, numbers, outs, false);
  }

  void keep_or_restore(Agent& agent) {
    if (!agent.kept) {
      agent.kept = agent.session->snapshot();
      agent.kept_frames = agent.frames;
      return;
    }
    agent.session->restore(*agent.kept);
    agent.kept.reset();
    agent.frames = agent.kept_frames;
    agent.recorded = 0;
  }

  void operate(Agent& agent) {
    switch (pick(8)) {
      case 0:
      case 1:
        return step(agent, some_frames(1));
      case 2:
        return step_both(agent);
      case 3: {
        const std::size_t back = pick(agent.recorded + 1);
        agent.session->roll_back(static_cast<std::int64_t>(back));
        return go_back(agent, back);
      }
      case 4:
      case 5:
        return resimulate(agent);
      case 6:
        return prefill(agent);
      default:
        return keep_or_restore(agent);
    }
  }

  std::shared_ptr<core::Policy> policy_;
  Random random_;
  std::size_t d_input_ = 0, d_output_ = 0;
  Floats frames_;
  std::vector<Agent> agents_;
  bool sound_ = true;
};

}  // namespace

void check_random_rollbacks(std::shared_ptr<core::Policy> policy, std::int64_t operations,
                            std::uint64_t seed) {
  INFO("seed " << seed);
  RandomRollbacks(std::move(policy), seed).run(operations);
}

std::int64_t rollback_operations(std::int64_t otherwise) {
  const char* const given = std::getenv("EXPHIL_ROLLBACK_OPERATIONS");
  return given != nullptr ? std::stoll(given) : otherwise;
}

// The recorded run restored, before a frame number that it had seen, the state from when it was first seen.
// So the session stays on the frames as they were first seen: for a frame seen before it goes back, answers,
// and plays those frames again.
void check_recorded_rollbacks(std::shared_ptr<core::Policy> policy, const Match& trace) {
  constexpr std::int64_t kHistory = 16;
  core::SessionOptions options;
  options.history = kHistory;
  Session session(std::move(policy), options);
  const auto d_input = static_cast<std::size_t>(trace.d_input),
             d_output = static_cast<std::size_t>(trace.d_output);
  Floats first_seen, out(d_output), again(kHistory * d_output);
  std::int64_t seen = 0, went_back = 0;
  double worst = 0;
  const std::int32_t start = trace.frame[0];
  for (std::int64_t i = 0; i < trace.frames; ++i) {
    const std::int64_t number = trace.frame[static_cast<std::size_t>(i)] - start;
    REQUIRE((number >= 0 && number <= seen));
    const std::int64_t back = seen - number;
    if (back == 0) {
      session.step(trace.obs_at(i), out.data());
      first_seen.insert(first_seen.end(), trace.obs_at(i), trace.obs_at(i) + d_input);
      ++seen;
    } else {
      session.resimulate(back, trace.obs_at(i), 1, out.data());
      float* const frames = first_seen.data() + static_cast<std::size_t>(number) * d_input;
      if (back == 1) {  // a frame that is new comes from the last answer
        std::copy(trace.obs_at(i), trace.obs_at(i) + d_input, frames);
      } else {
        session.resimulate(1, frames, back, again.data());
      }
      ++went_back;
    }
    worst = std::max(worst, relative_error(out.data(), trace.logits_at(i), out.size()));
  }
  CHECK(worst <= 1e-5);
  CHECK(went_back == 1031);
}

void check_long_resimulation(std::shared_ptr<core::Policy> policy) {
  constexpr std::int64_t kFrames = 75;
  const core::PolicyConfig& config = policy->config();
  const Floats frames = Random(13).vector(static_cast<std::size_t>(kFrames * config.d_input), -1.0f, 1.0f);
  Floats out(static_cast<std::size_t>(kFrames * config.d_output)), expected = out;
  core::SessionOptions options;
  options.history = kFrames;
  Session session(policy, options), other(policy);
  session.resimulate(0, frames.data(), kFrames, out.data());
  session.resimulate(kFrames, frames.data(), kFrames, out.data());
  for (std::int64_t t = 0; t < kFrames; ++t) {
    other.step(frames.data() + t * config.d_input, expected.data() + t * config.d_output);
  }
  CHECK(std::memcmp(out.data(), expected.data(), out.size() * sizeof(float)) == 0);
  CHECK(session.export_state() == other.export_state());
}

}  // namespace exphil::test
