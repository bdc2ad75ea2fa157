// Everything at once on the host backend: threads that step, batch, roll back, prefill, scan, load and drop,
// and at the end the bits of every session against a replay on one thread; and random operations of sessions
// of every kind and precision. Run by the ordinary tests, and by `make sanitize_threads` under
// ThreadSanitizer.
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "core/session/session.hpp"
#include "core/session/session_group.hpp"
#include "core/work/reaper.hpp"
#include "host/backend.hpp"
#include "support/catch.hpp"
#include "support/numbers.hpp"
#include "support/policy.hpp"
#include "support/random_sessions.hpp"
#include "support/scan_case.hpp"

namespace exphil {

namespace {

constexpr int kThreads = 4, kRounds = 40;

std::shared_ptr<core::Policy> load() {
  return host::host_backend()->load(test::make_policy({}), {});
}

std::vector<float> frame_of(const core::Policy& policy, int thread, int round) {
  test::Random random(static_cast<std::uint64_t>(1000 * thread + round));
  return random.vector(static_cast<std::size_t>(policy.config().d_input), -1.0f, 1.0f);
}

// The frames of one agent, by any of the calls that lead to the same state.
void advance(core::Session& session, core::Session& other, int thread, int round, std::vector<float>* out) {
  const core::Policy& policy = *session.policy();
  const std::vector<float> frame = frame_of(policy, thread, round);
  std::vector<float> outs(2 * static_cast<std::size_t>(policy.config().d_output));
  switch (round % 3) {
    case 0:
      session.step(frame.data(), outs.data());
      break;
    case 1: {  // a guess that is taken back
      const auto before = session.snapshot();
      session.step(outs.data(), outs.data());
      session.restore(*before);
      session.step(frame.data(), outs.data());
      break;
    }
    default: {  // beside a session that every thread uses
      std::vector<float> both = frame;
      both.insert(both.end(), frame.begin(), frame.end());
      core::SessionGroup({&session, &other}).step(both.data(), outs.data());
      const std::vector<std::uint8_t> state = session.export_state();
      session.import_state(state.data(), state.size());
    }
  }
  out->assign(outs.begin(), outs.begin() + policy.config().d_output);
}

void scan_once(int thread) {
  test::ScanSpec spec;
  spec.batch = 3;
  spec.seq = 40;
  spec.dim = 24;
  spec.seed = static_cast<std::uint64_t>(thread);
  const test::ScanCase scan(spec);
  core::ScanCall call = scan.call();
  const auto backend = host::host_backend();
  const auto bytes = static_cast<std::size_t>(call.shape.y_elements()) * sizeof(float);
  const core::ResultBuffer first = backend->allocate_result(bytes), second = backend->allocate_result(bytes);
  for (const core::ResultBuffer* y : {&first, &second}) {
    call.set(core::ScanOperand::y, y->data());
    backend->scan(call);
  }
  if (std::memcmp(first.data(), second.data(), bytes) != 0) throw std::runtime_error("two scans differ");
}

}  // namespace

TEST_CASE("a storm of calls from many threads changes no session's bits", "[host][storm]") {
  const std::shared_ptr<core::Policy> policy = load();
  core::Session shared(policy);
  std::vector<std::unique_ptr<core::Session>> sessions;
  for (int i = 0; i < kThreads; ++i) sessions.push_back(std::make_unique<core::Session>(policy));
  std::vector<std::vector<float>> last(kThreads);
  std::vector<std::string> failures(kThreads);
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      const auto index = static_cast<std::size_t>(i);
      try {
        for (int round = 0; round < kRounds; ++round) {
          advance(*sessions[index], shared, i, round, &last[index]);
          if (round % 8 == i) scan_once(i);
          if (round % 16 == i) {  // a policy of this thread alone, gone while a state of it is still held
            auto passing = std::make_shared<core::Session>(load());
            std::shared_ptr<core::Snapshot> kept = passing->snapshot();
            core::reap(std::move(passing));
            core::reap(std::move(kept));
          }
        }
      } catch (const std::exception& error) {
        failures[index] = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  core::drain_reaper();
  for (int i = 0; i < kThreads; ++i) {
    const auto index = static_cast<std::size_t>(i);
    CHECK(failures[index] == "");
    core::Session replay(policy);
    std::vector<float> out(static_cast<std::size_t>(policy->config().d_output));
    for (int round = 0; round < kRounds; ++round) {
      replay.step(frame_of(*policy, i, round).data(), out.data());
    }
    CHECK(out == last[index]);
    CHECK(replay.export_state() == sessions[index]->export_state());
  }
}

TEST_CASE("random operations of sessions on threads have the bits of replays on one thread",
          "[host][storm][sessions]") {
  test::PolicySpec large;  // whose steps are shared by threads
  large.d_model = 64, large.d_inner = 320, large.n_layer = 1;
  const std::int64_t operations = test::session_operations(20'000);
  const auto check = [](const test::PolicySpec& spec, std::int64_t count) {
    std::vector<std::shared_ptr<core::Policy>> policies;
    for (auto& weights : test::in_every_precision(*test::make_policy(spec))) {
      policies.push_back(host::host_backend()->load(weights, {}));
    }
    test::check_random_sessions(policies, count, spec.seed);
  };
  check({}, operations);
  check(large, operations / 20);
}

}  // namespace exphil
