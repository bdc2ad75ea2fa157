// A policy on the fake driver while every driver call and every allocation of every operation fails once. Its
// kernels are replaced by functions that only update states: each value of a state grows by one per frame,
// which reveals a state that was changed too early, too late or in place.
#include <cstring>

#include "core/environment.hpp"
#include "core/session/session.hpp"
#include "cuda/backend.hpp"
#include "cuda/cuda_test.hpp"
#include "cuda/policy/dims.hpp"
#include "cuda/policy/gradient.hpp"
#include "cuda/policy/loader.hpp"
#include "host/policy/policy.hpp"
#include "kernels/policy/arguments.cuh"
#include "support/allocations.hpp"
#include "support/policy.hpp"
#include "support/policy_faults.hpp"
#include "support/policy_forms.hpp"
#include "support/policy_grad_checks.hpp"
#include "support/rollback_case.hpp"

namespace exphil::test {
namespace {

// The form that EXPHIL_TEST_FORM names, of support/policy_forms.hpp.
const std::shared_ptr<const core::PolicyWeights>& weights() {
  static const auto chosen = [] {
    const std::string name = core::environment("EXPHIL_TEST_FORM");
    for (const PolicyForm& form : policy_forms({})) {
      if (form.name == name) return form.weights;
    }
    return std::shared_ptr<const core::PolicyWeights>(make_policy({}));
  }();
  return chosen;
}

const cuda::PolicyDims& dims() {
  static const cuda::PolicyDims dims(weights()->config);
  return dims;
}

void grow(const policy::StatePlace& state, std::int64_t begin, std::int64_t end, float by) {
  for (std::int64_t i = begin; i < end; ++i) state.to[i] = state.from[i] + by;
}

void step(const policy::StepArguments& args) {
  for (int i = 0; i < args.count; ++i) {
    grow(args.states == nullptr ? args.state : args.states[i], 0, dims().network().state_floats(), 1);
    for (int k = 0; k < dims().outputs(); ++k) {
      const int at = i * dims().outputs() + k;
      if (args.out != nullptr) args.out[at] = 0;
      if (args.out == nullptr) args.tagged[at] = static_cast<unsigned long long>(args.sequence) << 32;
    }
  }
}

// The part of the layer's state from `begin` to `end`, of each of `count` states.
void move_rows(const policy::RowStates& args, long long count, int begin, int end, float by) {
  if (args.states == nullptr) return;
  for (long long i = 0; i < count; ++i) {
    grow(args.states[i], args.state_offset + begin, args.state_offset + end, by);
  }
}

int run_kernel(const FakeLaunch& launch) {
  const std::string name = launch.function;
  void** const arguments = launch.arguments;
  const policy::Network& n = dims().network();
  const int ssm = n.convolutions[0].state_at, all = n.layer_floats;
  const auto& rows = *static_cast<const policy::RowStates*>(arguments[0]);
  if (name == "policy_step") {
    step(*static_cast<const policy::StepArguments*>(arguments[0]));
  } else if (name.rfind("policy_window", 0) == 0) {
    const auto& window = *static_cast<const policy::WindowArguments*>(arguments[0]);
    const int outputs = window.count * dims().outputs();
    for (int i = 0; i < outputs; ++i) {
      window.tagged[i] = static_cast<unsigned long long>(window.sequence) << 32;
    }
  } else if (name == "policy_convolve_batch") {
    move_rows(rows, rows.rows, ssm, all, 1);
  } else if (name == "policy_advance_batch") {
    move_rows(rows, rows.rows, 0, ssm, 1);
  } else if (name == "policy_advance_time") {
    move_rows(rows, rows.sequences, 0, all, static_cast<float>(rows.seq));
  }
  return 0;
}

std::shared_ptr<core::Policy> load(const std::shared_ptr<cuda::Context>& context) {
  fake().on_launch(run_kernel);
  core::PolicyOptions options;
  options.max_sessions = 4 * FaultBench::kSessions;  // two benches, and a batch of one of them
  return cuda::load_policy(context, weights(), options);
}

// ahead: states of windows are computed ahead, by a thread of their own, whose calls no operation counts on;
// and the fake driver's kernels give other answers by steps than by windows.
std::map<std::string, std::string> small_slices(bool ahead = false) {
  const std::string sizes = "batch_agents=2,fused_limit=2,slice_rows=64";
  return {{"EXPHIL_NATIVE_POLICY", sizes + (ahead ? "" : ",window_ahead=0")}};
}

// `window`: of the sessions; 0 where they carry a state.
void fail_driver_calls(const std::shared_ptr<cuda::Context>& context, std::int64_t window) {
  for (const int result : {kOutOfMemory, kInvalidValue}) {
    {
      const std::shared_ptr<core::Policy> policy = load(context);
      {
        FaultBench bench(policy, window);
        for (const PolicyOperation& operation : bench.operations()) operation.run();
      }
      const std::size_t resident = policy->resident_bytes();
      const int events = fake().events();
      const int thrown = fail_everywhere([&] { return policy; }, failing_driver_calls(result), window);
      CHECK(thrown > 50);
      CHECK(policy->resident_bytes() == resident);
      CHECK(fake().events() == events);
      CHECK(fake().context_depth() == 0);
    }
    CHECK(context->device_pool().held_bytes() == 0);
    CHECK(context->pinned_pool().held_bytes() == 0);
  }
}

}  // namespace

TEST_CASE("every driver call of a policy fails once", "[.policy_driver_faults]") {
  const auto context = cuda::Context::open(0);
  check_long_resimulation(load(context));
  fail_driver_calls(context, 0);
  fail_driver_calls(context, 6);
}

TEST_CASE("every driver call and every allocation of a policy's load fails once", "[.policy_load_faults]") {
  const auto context = cuda::Context::open(0);
  fake().on_launch(run_kernel);
  fake().pause_failing = pause_failing_allocations;
  const Operation load = load_of_policy(cuda::open_cuda_backend(0));
  for (const Failing& failing :
       {failing_driver_calls(kOutOfMemory), failing_driver_calls(kInvalidValue), Failing(fail_allocation)}) {
    fail_operations({load}, failing, [&] {
      CHECK(context->device_pool().held_bytes() == 0);
      CHECK(context->pinned_pool().held_bytes() == 0);
      CHECK(fake().context_depth() == 0);
    });
  }
}

TEST_CASE("every allocation of a policy fails once", "[.policy_allocation_faults]") {
  const auto context = cuda::Context::open(0);
  fake().pause_failing = pause_failing_allocations;
  const std::shared_ptr<core::Policy> policy = load(context);
  for (const std::int64_t window : {0, 6}) {
    CHECK(fail_everywhere([&] { return policy; }, fail_allocation, window) > 0);
  }
}

TEST_CASE("a lost device is an error immediately, and the host backend still works", "[.policy_lost]") {
  const auto context = cuda::Context::open(0);
  FaultBench bench(load(context));
  std::vector<float> obs(5), out(3);
  fake().fail_any(kIllegalAddress, 1);
  CHECK_THROWS_AS(bench.operations()[0].run(), core::Error);
  for (const PolicyOperation& operation : bench.operations()) {
    INFO(operation.name);
    fake().fail_any(kInvalidValue, 0);
    const core::Error error = thrown_by(operation.run);
    CHECK(error.kind() == core::ErrorKind::device_lost);
    CHECK_FALSE(fake().fail_any(0, -1));  // at once: no call of the driver that does work was made
  }
  core::Session host_session(host::make_policy(*make_policy({}), {}));
  host_session.step(obs.data(), out.data());
  FaultBench host_bench(host::make_policy(*make_policy({}), {}));
  for (const PolicyOperation& operation : host_bench.operations()) operation.run();
}

namespace {

// `fresh`: each call makes the gradient, which puts the weights on the device.
int fail_gradient(const std::shared_ptr<cuda::Context>& context, bool fresh, const Failing& failing) {
  const PolicyGradCase c = policy_grad_case(weights()->config, 3, 5, true);
  const std::vector<float> d_outs = c.d_outs_f32();
  PolicyGradResult r;
  r.weights = core::zeros_of<float>(weights()->network());
  r.frames.resize(c.frames.size()), r.outs.resize(d_outs.size());
  r.states.resize(c.states.size());
  std::unique_ptr<core::PolicyGradient> gradient;
  const auto run = [&] {
    if (gradient == nullptr) gradient = cuda::make_gradient(context, weights());
    gradient->run(c.sequences(), d_outs.data(),
                  {&r.weights, r.frames.data(), r.outs.data(), r.states.data()});
  };
  run();
  const std::size_t held = context->device_pool().held_bytes();
  return fail_at_each_point("gradient", failing, [&] {
    if (fresh) gradient.reset();
    return Attempt{run, [&](bool) {
                     run();
                     CHECK(context->device_pool().held_bytes() == held);
                   }};
  });
}

}  // namespace

TEST_CASE("every driver call and allocation of a policy's gradient fails once", "[.policy_gradient_faults]") {
  const auto context = cuda::Context::open(0);
  fake().pause_failing = pause_failing_allocations;
  for (const bool fresh : {false, true}) {
    CHECK(fail_gradient(context, fresh, failing_driver_calls(kOutOfMemory)) > 20);
    CHECK(fail_gradient(context, fresh, failing_driver_calls(kInvalidValue)) > 20);
  }
  CHECK(fail_gradient(context, false, fail_allocation) > 20);
  CHECK(context->device_pool().held_bytes() == 0);
  CHECK(context->pinned_pool().held_bytes() == 0);
  CHECK(fake().context_depth() == 0);
}

TEST_CASE("every driver call and allocation of a state computed ahead fails once", "[.policy_ahead_faults]") {
  const auto context = cuda::Context::open(0);
  fake().pause_failing = pause_failing_allocations;
  {
    const std::shared_ptr<core::Policy> policy = load(context);
    const std::vector<float> frames(static_cast<std::size_t>(5 * policy->config().d_input), 0.5f);
    std::unique_ptr<core::PrefillAhead> ahead;
    const auto make = [&] { ahead = policy->prefill_ahead(5); };
    const auto begin = [&] {
      ahead->begin(frames.data(), 5);
      const bool there = ahead->done();
      CHECK(there);
    };
    for (int i = 0; i < 8; ++i) make();  // the policy makes no more lanes after that
    for (const Failing& failing : {failing_driver_calls(kOutOfMemory), failing_driver_calls(kInvalidValue),
                                   Failing(fail_allocation)}) {
      for (const auto& run : {std::function<void()>(make), std::function<void()>(begin)}) {
        make(), begin();
        const std::size_t held = context->device_pool().held_bytes();
        const auto works_again = [&](bool) {
          if (!ahead) make();
          begin();
          CHECK(context->device_pool().held_bytes() == held);
        };
        CHECK(fail_at_each_point("ahead", failing, [&] { return Attempt{run, works_again}; }) > 0);
      }
    }
  }
  CHECK(context->device_pool().held_bytes() == 0);
  CHECK(context->pinned_pool().held_bytes() == 0);
  CHECK(fake().context_depth() == 0);
}

TEST_CASE("a policy whose calls fail keeps every state", "[cuda][policy][faults][nvrtc]") {
  if (!have_nvrtc()) return;
  for (const char* tag : {"[.policy_driver_faults]", "[.policy_load_faults]", "[.policy_allocation_faults]",
                          "[.policy_lost]", "[.policy_gradient_faults]"}) {
    const RunResult result = run_over_fake(tag, small_slices());
    INFO(tag << "\n" << result.output);
    CHECK(result.status == 0);
  }
  const RunResult ahead = run_over_fake("[.policy_ahead_faults]", small_slices(true));
  INFO(ahead.output);
  CHECK(ahead.status == 0);
  auto variables = small_slices();
  variables["EXPHIL_TEST_FORM"] =
      "exphil";  // two-layer heads and the mean of dt have memory and kernels more
  const RunResult result = run_over_fake("[.policy_driver_faults]", variables);
  INFO(result.output);
  CHECK(result.status == 0);
}

}  // namespace exphil::test
