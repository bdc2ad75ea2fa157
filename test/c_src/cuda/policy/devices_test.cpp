// A model on the four devices of an emulated machine (emulated_gpu.hpp), whose driver refuses a stream, an
// event or a launch of another device's context: sessions of every kind in one batch have the bits of lone
// sessions on one device, and what a lost device leaves.
#include <algorithm>
#include <memory>
#include <vector>

#include "core/session/session.hpp"
#include "core/session/session_group.hpp"
#include "cuda/cuda_test.hpp"
#include "cuda/device/context.hpp"
#include "cuda/emulated_gpu.hpp"
#include "cuda/policy/loader.hpp"
#include "support/catch.hpp"
#include "support/numbers.hpp"
#include "support/policy.hpp"

namespace exphil::test {
namespace {

constexpr int kDevices = 4;
using Floats = std::vector<float>;
using Bytes = std::vector<std::uint8_t>;

struct Machine {
  Machine() : weights(make_policy({})), replicas(std::make_shared<core::Replicas>(kDevices)) {
    core::PolicyOptions options;
    options.max_sessions = 16;
    for (int i = 0; i < kDevices; ++i) {
      policies.push_back(cuda::load_policy(cuda::Context::open(i), weights, options));
    }
  }
  // Of kind i: carried, with a window, carried with a history, a window with a history, ...
  static core::SessionOptions options_of(std::size_t i) {
    core::SessionOptions options;
    if (i % 2 == 1) options.window = 3;
    if (i % 4 >= 2) options.history = 2;
    return options;
  }
  std::unique_ptr<core::Session> session(std::size_t i) {
    core::Replicas::Place place = core::Replicas::least_loaded(replicas);
    const auto policy = policies[place.device()];
    return std::make_unique<core::Session>(policy, options_of(i), nullptr, std::move(place));
  }
  std::shared_ptr<const core::PolicyWeights> weights;
  std::vector<std::shared_ptr<core::Policy>> policies;
  std::shared_ptr<core::Replicas> replicas;
};

struct Agents {
  template <class Make>
  Agents(std::size_t count, const Make& make) {
    for (std::size_t i = 0; i < count; ++i) own.push_back(make(i));
    for (const auto& session : own) all.push_back(session.get());
    d_input = static_cast<std::size_t>(all[0]->policy()->config().d_input);
    d_output = static_cast<std::size_t>(all[0]->policy()->config().d_output);
  }
  // An observation for each agent in frame t.
  Floats obs(std::size_t t) const { return Random(t).vector(all.size() * d_input, -1, 1); }
  Floats batch(std::size_t t) {
    Floats out(all.size() * d_output);
    core::SessionGroup(all).step(obs(t).data(), out.data());
    return out;
  }
  Floats alone(std::size_t t) {
    Floats out(all.size() * d_output);
    const Floats rows = obs(t);
    for (std::size_t i = 0; i < all.size(); ++i) {
      all[i]->step(rows.data() + i * d_input, out.data() + i * d_output);
    }
    return out;
  }
  std::vector<Bytes> states() const {
    std::vector<Bytes> bytes;
    for (core::Session* session : all) bytes.push_back(session->export_state());
    return bytes;
  }
  std::vector<std::unique_ptr<core::Session>> own;
  std::vector<core::Session*> all;
  std::size_t d_input, d_output;
};

constexpr std::size_t kAgents = 18;
// So that agents of every kind are on every device.
std::size_t kind_of(std::size_t agent) {
  return agent + agent / kDevices;
}

TEST_CASE("a model on four devices of an emulated machine", "[.four_devices]") {
  emulate_launches();
  Machine machine;
  Agents agents(kAgents, [&](std::size_t i) { return machine.session(kind_of(i)); });
  Agents right(kAgents, [&](std::size_t i) {
    return std::make_unique<core::Session>(machine.policies[0], Machine::options_of(kind_of(i)));
  });
  for (std::size_t t = 0; t < 6; ++t) CHECK(agents.batch(t) == right.alone(t));
  CHECK(agents.states() == right.states());
  // A state goes from device 3 to device 0.
  agents.all[0]->restore(*agents.all[7]->snapshot());
  right.all[0]->restore(*right.all[7]->snapshot());
  CHECK(agents.batch(6) == right.alone(6));

  const std::vector<Bytes> before = agents.states();
  std::vector<std::size_t> alive;
  std::vector<Bytes> kept;
  for (std::size_t i = 0; i < kAgents; ++i) {
    if (i % kDevices == 2) continue;
    alive.push_back(i);
    kept.push_back(before[i]);
  }
  fake().lose(2);
  CHECK(thrown_by([&] { agents.batch(7); }).kind() == core::ErrorKind::device_lost);
  for (std::size_t i = 2; i < kAgents; i += kDevices) {
    Floats out(agents.d_output);
    const Floats obs(agents.d_input);
    CHECK(thrown_by([&] { agents.all[i]->step(obs.data(), out.data()); }).kind() ==
          core::ErrorKind::device_lost);
  }
  // Those of the other devices go on, as if nothing had been tried.
  Agents others(alive.size(), [&](std::size_t i) { return std::move(agents.own[alive[i]]); });
  CHECK(others.states() == kept);
  Agents undisturbed(alive.size(), [&](std::size_t i) {
    const auto options = Machine::options_of(kind_of(alive[i]));
    auto session = std::make_unique<core::Session>(machine.policies[0], options);
    session->import_state(kept[i].data(), kept[i].size());
    return session;
  });
  for (std::size_t t = 8; t < 11; ++t) CHECK(others.batch(t) == undisturbed.alone(t));
  CHECK(fake().context_depth() == 0);
}

// So many on each device that their frames go through the row kernels, which read and write the rows of the
// whole batch.
TEST_CASE("a batch of carried agents on four devices", "[.four_devices_of_rows]") {
  emulate_launches();
  Machine machine;
  const auto carried = [&](std::size_t) { return machine.session(0); };
  Agents agents(kAgents, carried),
      right(kAgents, [&](std::size_t) { return std::make_unique<core::Session>(machine.policies[0]); });
  const int before = emulated_launches("policy_advance_batch");
  for (std::size_t t = 0; t < 4; ++t) CHECK(agents.batch(t) == right.alone(t));
  CHECK(emulated_launches("policy_advance_batch") - before >= 4 * kDevices);
  CHECK(agents.states() == right.states());
}

TEST_CASE("a model on four devices without a GPU", "[cuda][policy][devices][emulated]") {
  require_emulated("[.four_devices]", {{"FAKE_CUDA_DEVICES", "4"}});
  require_emulated(
      "[.four_devices_of_rows]",
      {{"FAKE_CUDA_DEVICES", "4"}, {"EXPHIL_NATIVE_POLICY", "team=1,inline_obs=0,batch_agents=2"}});
}

}  // namespace
}  // namespace exphil::test
