#include "support/random_player.hpp"
#include "core/session/session_group.hpp"

#include <algorithm>
#include <exception>

#include "support/gathered.hpp"
#include "support/step_without_waiting.hpp"

namespace exphil::test {

namespace {

using core::Session;
using core::SessionGroup;
using Floats = std::vector<float>;
using Bytes = std::vector<std::uint8_t>;

// The agent's next frames were these.
void played(RandomAgent& agent, const std::vector<std::size_t>& numbers, const float* outs, bool recorded) {
  for (const std::size_t number : numbers) {
    agent.frames.push_back({agent.now, number, Floats(outs, outs + agent.d_output()), {}});
    agent.now = static_cast<int>(agent.frames.size()) - 1;
    outs += agent.d_output();
  }
  const auto history = static_cast<std::size_t>(agent.options.history);
  agent.recorded = recorded ? std::min(history, agent.recorded + numbers.size()) : 0;
}

void take_state(RandomAgent& agent) {
  if (agent.now < 0) return;
  Bytes& state = agent.frames[static_cast<std::size_t>(agent.now)].state;
  Bytes found = agent.session->export_state();
  if (!state.empty() && state != found)
    agent.wrong = "a state differs from when the session was there before";
  state = std::move(found);
}

void go_back(RandomAgent& agent, std::size_t frames) {
  agent.recorded -= frames;
  for (; frames > 0; --frames) agent.now = agent.frames[static_cast<std::size_t>(agent.now)].before;
}

void keep_or_restore(RandomAgent& agent) {
  if (!agent.kept) {
    agent.kept = agent.session->snapshot();
    agent.kept_at = agent.now;
    return;
  }
  agent.session->restore(*agent.kept);
  agent.kept.reset();
  agent.now = agent.kept_at;
  agent.recorded = 0;
}

// Into a new session of the same kind.
void move(RandomAgent& agent) {
  const Bytes state = agent.session->export_state();
  agent.new_session();
  agent.session->import_state(state.data(), state.size());
  agent.recorded = 0;
}

}  // namespace

void RandomPlayer::run(std::int64_t operations) {
  for (std::int64_t i = 0; i < operations && !agents_.empty(); ++i) {
    RandomAgent& agent = *agents_[pick(agents_.size())];
    try {
      operate(agent);
      if (pick(4) == 0) take_state(agent);
    } catch (const std::exception& error) {
      agent.wrong = error.what();
      return;
    }
  }
  for (RandomAgent* agent : agents_) take_state(*agent);
}

RandomPlayer::Numbers RandomPlayer::some_frames(std::size_t count) {
  Numbers numbers(count);
  for (std::size_t& number : numbers) number = pick(Observations::kCount);
  return numbers;
}

void RandomPlayer::step(RandomAgent& agent, bool may_wait) {
  if (agent.options.armed && pick(2) == 0) agent.session->arm();
  const Numbers numbers = some_frames(1);
  const float* const obs = observations_.at(numbers[0]);
  Floats out(agent.d_output());
  if (agent.session->gatherer() != nullptr && pick(4) != 0) {
    out = play_gathered(*agent.session, obs).out;
  } else if (may_wait) {
    agent.session->step(obs, out.data());
  } else {
    step_without_waiting(*agent.session, obs, out.data());
  }
  played(agent, numbers, out.data(), true);
}

void RandomPlayer::step_batch(RandomAgent& agent) {
  std::vector<RandomAgent*> chosen = {&agent};
  for (RandomAgent* other : agents_) {
    if (other != &agent && other->policy == agent.policy && pick(2) == 0) chosen.push_back(other);
  }
  std::vector<Session*> sessions;
  for (RandomAgent* one : chosen) sessions.push_back(one->session.get());
  const Numbers numbers = some_frames(chosen.size());
  Floats out(chosen.size() * agent.d_output());
  SessionGroup(sessions).step(observations_.rows(numbers).data(), out.data());
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    played(*chosen[i], {numbers[i]}, out.data() + i * agent.d_output(), true);
  }
}

void RandomPlayer::roll_back(RandomAgent& agent) {
  const std::size_t back = pick(agent.recorded + 1);
  try {
    agent.session->roll_back(static_cast<std::int64_t>(back), pick(2) == 0);
  } catch (const core::WouldWait&) {  // its next frame is being begun
    agent.session->roll_back(static_cast<std::int64_t>(back));
  }
  go_back(agent, back);
}

void RandomPlayer::resimulate(RandomAgent& agent) {
  const std::size_t back = pick(agent.recorded + 1);
  const Numbers numbers = some_frames(pick(static_cast<std::size_t>(agent.options.history) + 1));
  Floats outs(numbers.size() * agent.d_output());
  agent.session->resimulate(static_cast<std::int64_t>(back), observations_.rows(numbers).data(),
                            static_cast<std::int64_t>(numbers.size()), outs.data());
  go_back(agent, back);
  played(agent, numbers, outs.data(), true);
}

void RandomPlayer::prefill(RandomAgent& agent) {
  const Numbers numbers = some_frames(1 + pick(5));
  Floats outs(numbers.size() * agent.d_output());
  agent.session->prefill(observations_.rows(numbers).data(), static_cast<std::int64_t>(numbers.size()),
                         outs.data());
  played(agent, numbers, outs.data(), false);
}

void RandomPlayer::window(RandomAgent& agent) {
  const auto count = static_cast<std::int64_t>(1 + pick(3)), seq = static_cast<std::int64_t>(1 + pick(5));
  WindowCall windows{some_frames(static_cast<std::size_t>(count * seq)), count, seq, {}};
  windows.out.resize(static_cast<std::size_t>(count) * agent.d_output());
  agent.policy->window(observations_.rows(windows.numbers).data(), count, seq, windows.out.data());
  agent.windows.push_back(std::move(windows));
}

void RandomPlayer::operate(RandomAgent& agent) {
  const bool can_go_back = agent.options.history > 0;
  switch (pick(12)) {
    case 0:
    case 1:
      return can_go_back ? resimulate(agent) : step(agent, true);
    case 2:
    case 3:
      return can_go_back ? roll_back(agent) : step(agent, false);
    case 4:
      return step_batch(agent);
    case 5:
      return prefill(agent);
    case 6:
      return window(agent);
    case 7:
    case 8:
      return keep_or_restore(agent);
    case 9:
      return move(agent);
    default:
      return step(agent, pick(2) == 0);
  }
}

}  // namespace exphil::test
