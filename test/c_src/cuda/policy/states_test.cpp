// States of a policy on the fake driver: one of another policy is refused in every place, whatever came
// before it in the call, and the call takes no memory with it.
#include <memory>
#include <vector>

#include "cuda/cuda_test.hpp"
#include "cuda/policy/loader.hpp"
#include "support/catch.hpp"
#include "support/errors.hpp"
#include "support/policy.hpp"

namespace exphil::test {
namespace {

TEST_CASE("a state of another policy is refused and costs no slot", "[.states_of_another]") {
  fake().simplify_steps();
  const auto context = cuda::Context::open(0);
  const auto policy = cuda::load_policy(context, make_policy({}), {});
  const auto other = cuda::load_policy(context, make_policy({}), {});
  const auto own = policy->new_state(), next = policy->new_state(), foreign = other->new_state();
  const std::size_t resident = policy->resident_bytes();
  const std::vector<float> obs(static_cast<std::size_t>(2 * policy->config().d_input), 0.5f);
  std::vector<float> out(static_cast<std::size_t>(2 * policy->config().d_output));
  std::vector<float> before(static_cast<std::size_t>(policy->config().state_floats())), after = before;
  policy->read_state(*own, before.data());
  const auto refused = [&](core::State* from0, core::State* from1, core::State* to0, core::State* to1) {
    core::State *const from[] = {from0, from1}, *const to[] = {to0, to1};
    const CaughtError error = error_of([&] { policy->advance(from, to, 2, obs.data(), out.data()); });
    return error.thrown && error.kind == core::ErrorKind::mismatch;
  };
  // More often than the arena has slots: a slot that were lost would show in resident_bytes().
  for (int i = 0; i < 1200; ++i) {
    REQUIRE(refused(own.get(), foreign.get(), own.get(), next.get()));
    REQUIRE(refused(own.get(), next.get(), own.get(), foreign.get()));
    core::State* const chain[] = {next.get(), foreign.get()};
    REQUIRE(error_of([&] { policy->advance_chain(*own, chain, 2, obs.data(), out.data()); }).thrown);
    REQUIRE(error_of([&] { policy->advance_chain(*foreign, chain, 1, obs.data(), out.data()); }).thrown);
  }
  CHECK(policy->resident_bytes() == resident);
  policy->read_state(*own, after.data());
  CHECK(after == before);
  core::State* const state = own.get();
  policy->step(&state, 1, obs.data(), out.data());
  policy->read_state(*own, after.data());
  CHECK(after != before);
}

// Thousands are looked up slice by slice: those before are being computed when one is refused.
TEST_CASE("a state of another policy among thousands is refused and changes nothing",
          "[.states_of_thousands]") {
  fake().simplify_steps();
  const auto context = cuda::Context::open(0);
  const auto policy = cuda::load_policy(context, make_policy({}), {});
  const auto other = cuda::load_policy(context, make_policy({}), {});
  constexpr std::size_t kCount = 9000;
  std::vector<std::unique_ptr<core::State>> states;
  std::vector<core::State*> all;
  for (std::size_t i = 0; i < kCount; ++i) {
    states.push_back(policy->new_state());
    all.push_back(states.back().get());
  }
  const std::vector<float> values(static_cast<std::size_t>(policy->config().state_floats()), 1.5f);
  policy->write_state(*all.front(), values.data());
  const std::vector<float> obs(kCount * static_cast<std::size_t>(policy->config().d_input), 0.5f);
  std::vector<float> out(kCount * static_cast<std::size_t>(policy->config().d_output));
  const auto step = [&] { policy->step(all.data(), kCount, obs.data(), out.data()); };
  step();  // which makes room for all
  policy->write_state(*all.front(), values.data());
  const std::size_t resident = policy->resident_bytes();
  const auto foreign = other->new_state();
  core::State* const own = all.back();
  for (int i = 0; i < 3; ++i) {
    all.back() = foreign.get();
    const CaughtError error = error_of(step);
    REQUIRE((error.thrown && error.kind == core::ErrorKind::mismatch));
    std::vector<float> after(values.size());
    policy->read_state(*all.front(), after.data());
    CHECK(after == values);
  }
  all.back() = own;
  step();
  CHECK(policy->resident_bytes() == resident);
}

TEST_CASE("states of another policy are refused without a GPU", "[cuda][policy][nvrtc]") {
  if (!have_nvrtc()) return;
  require_passed(run_over_fake("[.states_of_another]",
                               {{"EXPHIL_NATIVE_POLICY", "team=1,inline_obs=0,batch_agents=1"}}));
  require_passed(run_over_fake("[.states_of_thousands]",
                               {{"EXPHIL_NATIVE_POLICY", "team=1,inline_obs=0,batch_agents=1"}}));
}

}  // namespace
}  // namespace exphil::test
