// Frames that are launched ahead of their observation while driver calls and allocations fail, and on a
// device that is lost meanwhile.
#include "cuda/armed_player.hpp"
#include "support/allocations.hpp"
#include "support/catch.hpp"
#include "support/faults.hpp"

namespace exphil::test {
namespace {}  // namespace

// A failed launch ahead of the observation is no error of any call: the frame is launched as a plain one. The
// outputs of the last frame depend on the states after all of them.
TEST_CASE("every driver call and allocation fails once while a frame is armed", "[.armed_faults]") {
  fake().simplify_steps();
  fake().pause_failing = pause_failing_allocations;
  const SharedPolicy policy = load_armed_policy();
  ArmedPlayer plain(policy, false);
  std::vector<Floats> right;
  for (std::size_t t = 0; t < 4; ++t) right.push_back(plain.play(t));
  int thrown = 0;
  for (const Failing& failing :
       {failing_driver_calls(kOutOfMemory), failing_driver_calls(kInvalidValue), Failing(fail_allocation)}) {
    thrown += fail_at_each_point("armed frames", failing, [&] {
      const auto player = std::make_shared<ArmedPlayer>(policy, true);
      player->session.arm();
      player->play(0);
      const auto played = std::make_shared<std::size_t>(1);
      const auto run = [=] {
        for (; *played < 4; ++*played) {
          player->session.arm();
          player->play(*played);
        }
      };
      return Attempt{run, [=, &right](bool threw) {
                       if (threw) run();
                       CHECK(player->out == right[3]);
                     }};
    });
    thrown += fail_at_each_point("an armed session", failing, [&] {
      return Attempt{[&] { ArmedPlayer(policy, true).session.arm(); }, [](bool) {}};
    });
  }
  CHECK(thrown > 5);
  CHECK(fake().context_depth() == 0);
}

TEST_CASE("a device that is lost while a frame is armed is an error of the frame", "[.armed_lost]") {
  fake().simplify_steps();
  const SharedPolicy policy = load_armed_policy();
  ArmedPlayer player(policy, true);
  player.play(0);
  player.session.arm();
  fake().fail_any(kIllegalAddress, 0);
  CHECK_THROWS_AS(cuda::StreamLease(*cuda::Context::open(0)).synchronize(), core::Error);
  CHECK(thrown_by([&] { player.play(1); }).kind() == core::ErrorKind::device_lost);
  player.session.arm();
  CHECK(thrown_by([&] { player.play(1); }).kind() == core::ErrorKind::device_lost);
}

TEST_CASE("armed frames whose calls fail", "[cuda][policy][armed][faults][nvrtc]") {
  if (!have_nvrtc()) return;
  for (const char* tag : {"[.armed_faults]", "[.armed_lost]"}) {
    const RunResult run =
        run_over_fake(tag, {{"EXPHIL_NATIVE_POLICY", std::string(kSimpleSteps) + kLongWait}});
    INFO(tag << "\n" << run.output);
    CHECK(run.status == 0);
  }
}

}  // namespace exphil::test
