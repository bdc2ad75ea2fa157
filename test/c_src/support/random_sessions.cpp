#include "support/random_sessions.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <thread>
#include <utility>

#include "core/policy/rounding.hpp"
#include "support/catch.hpp"
#include "support/numbers.hpp"
#include "support/random_player.hpp"

namespace exphil::test {

namespace {

using core::Session;
using Floats = std::vector<float>;
using Bytes = std::vector<std::uint8_t>;

constexpr int kAgents = 32, kThreads = 4;
// Operations of a round, at whose end every session is replayed and begins again.
constexpr std::int64_t kRound = 1024;

bool same(const float* p, const float* q, std::size_t count) {
  return std::memcmp(p, q, count * sizeof(float)) == 0;
}

// What is wrong with the agent's answers and states; "" where nothing is.
std::string replayed(const RandomAgent& agent, const Observations& observations) {
  core::SessionOptions plain = agent.options;
  plain.history = 0;
  plain.armed = false;
  Session session(agent.policy, plain);
  std::map<int, Bytes> states = {{-1, session.export_state()}};
  for (std::size_t i = 0; i < agent.frames.size(); ++i) {
    if (agent.frames[i].before + 1 != static_cast<int>(i)) states[agent.frames[i].before];  // kept below
  }
  Floats out(agent.d_output());
  for (std::size_t i = 0; i < agent.frames.size(); ++i) {
    const PlayedFrame& frame = agent.frames[i];
    if (frame.before + 1 != static_cast<int>(i)) {
      const Bytes& state = states.at(frame.before);
      session.import_state(state.data(), state.size());
    }
    session.step(observations.at(frame.number), out.data());
    if (!same(frame.out.data(), out.data(), out.size())) return "an answer differs";
    const auto needed = states.find(static_cast<int>(i));
    if (needed == states.end() && frame.state.empty()) continue;
    Bytes state = session.export_state();
    if (!frame.state.empty() && frame.state != state) return "a state differs";
    if (needed != states.end()) needed->second = std::move(state);
  }
  for (const WindowCall& all : agent.windows) {
    const auto seq = static_cast<std::ptrdiff_t>(all.seq);
    for (std::int64_t k = 0; k < all.count; ++k) {
      const auto first = all.numbers.begin() + k * seq;
      agent.policy->window(observations.rows({first, first + seq}).data(), 1, all.seq, out.data());
      const float* const answer = all.out.data() + static_cast<std::size_t>(k) * out.size();
      if (!same(answer, out.data(), out.size())) return "the answer to a window differs";
    }
  }
  return "";
}

// Of session i. kind: 0 to 3, carried or with a window, without and with a history.
core::SessionOptions kind_of(int i, int kind, bool armed) {
  core::SessionOptions options;
  if (kind % 2 == 1) options.history = 1 + i % 9;
  if (kind >= 2) options.window = 3 + i % 3;
  options.armed = armed && kind < 2 && i % 3 != 2;
  if (i % 2 == 1) options.pad = core::Pad::none;
  return options;
}

}  // namespace

std::vector<std::shared_ptr<const core::PolicyWeights>> in_every_precision(
    const core::PolicyWeights& weights) {
  std::vector<std::shared_ptr<const core::PolicyWeights>> all;
  for (const auto precision : {core::Precision::f32, core::Precision::bf16, core::Precision::f16,
                               core::Precision::tf32x3, core::Precision::int8}) {
    all.push_back(std::make_shared<core::PolicyWeights>(
        precision == core::Precision::f32 ? weights : core::rounded_weights(weights, precision)));
  }
  return all;
}

void check_random_sessions(const std::vector<std::shared_ptr<core::Policy>>& policies,
                           std::int64_t operations, std::uint64_t seed, bool armed) {
  const auto policy_count = static_cast<int>(policies.size());
  const Observations observations(static_cast<std::size_t>(policies[0]->config().d_input), seed);
  Random random(seed);
  std::vector<std::shared_ptr<core::Gatherer>> gatherers;
  for (const auto& policy : policies) gatherers.push_back(std::make_shared<core::Gatherer>(policy));
  for (std::int64_t done = 0; done < operations; done += kRound) {
    INFO("seed " << seed << ", the round after " << done << " operations");
    std::vector<RandomAgent> agents(kAgents);
    std::vector<std::vector<RandomAgent*>> of_threads(kThreads);
    for (int i = 0; i < kAgents; ++i) {
      RandomAgent& agent = agents[static_cast<std::size_t>(i)];
      agent.policy = policies[static_cast<std::size_t>(i % policy_count)];
      // No step of tf32x3 or with states of 16 bits is one launch.
      const core::PolicyConfig& config = agent.policy->config();
      const bool one_launch =
          config.precision != core::Precision::tf32x3 && config.states == core::Precision::f32;
      agent.options = kind_of(i, i / policy_count % 4, armed && one_launch);
      if (i / policy_count % 3 != 0) agent.gatherer = gatherers[static_cast<std::size_t>(i % policy_count)];
      agent.new_session();
      of_threads[random.bits() % kThreads].push_back(&agent);
    }
    const std::int64_t count = std::min(kRound, operations - done) / kThreads;
    std::vector<std::thread> threads;
    for (std::vector<RandomAgent*>& own : of_threads) {
      threads.emplace_back(
          [&, own_seed = random.bits()] { RandomPlayer(std::move(own), observations, own_seed).run(count); });
    }
    for (std::thread& thread : threads) thread.join();
    for (const RandomAgent& agent : agents) {
      INFO("session " << &agent - agents.data());
      REQUIRE(agent.wrong == "");
      REQUIRE(replayed(agent, observations) == "");
    }
  }
}

std::int64_t session_operations(std::int64_t otherwise) {
  const char* const given = std::getenv("EXPHIL_SESSION_OPERATIONS");
  return given != nullptr ? std::stoll(given) : otherwise;
}

}  // namespace exphil::test
