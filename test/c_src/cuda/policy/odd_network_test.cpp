// Networks that no trunk makes and that the kernels for windows do not take (kernels/policy/window_plan.cuh):
// every window of them, and every session with a window, goes through the kernels over many rows.
#include <algorithm>
#include <limits>

#include "cuda/cuda_test.hpp"
#include "cuda/emulated_gpu.hpp"
#include "cuda/policy/load_on_device.hpp"
#include "cuda/policy/window.hpp"
#include "kernels/policy/window_plan.cuh"
#include "support/catch.hpp"
#include "support/made_networks.hpp"
#include "support/policy_forms.hpp"

namespace exphil::test {
namespace {

using Weights = std::shared_ptr<const core::PolicyWeights>;

constexpr std::int64_t kWidth = 34, kInner = 38, kState = 5, kTaps = 3;

// A norm, a product to all that the layer needs, a convolution, a scan, and a product that is added.
void append_layer(NetworkMaker& b, std::int64_t index) {
  if (index == 0) {
    b.vector("normed", kWidth), b.vector("joined", 3 * kInner), b.vector("x", kInner);
    b.vector("projected", 2 * kState), b.vector("y", kInner);
  }
  const core::VectorId normed = b.network.outs + 1, joined = normed + 1, x = joined + 1, projected = x + 1,
                       y = projected + 1;
  core::SelectiveScan scan;
  scan.x = b.all(x), scan.dt = {joined, kInner, kInner}, scan.z = {joined, 2 * kInner, kInner};
  scan.b = {projected, 0, kState}, scan.c = {projected, kState, kState}, scan.out = b.all(y);
  b.network.layers.push_back(
      {b.norm(b.all(b.network.hidden), b.all(normed)), b.product(b.all(normed), b.all(joined), true),
       b.convolution({joined, 0, kInner}, b.all(x), kTaps, index),
       b.product(b.all(x), b.all(projected), false), b.scan(scan, index, true, false), b.residual(b.all(y))});
}

// inputs: products of the input block. The kernels for windows take one.
Weights with_inputs(int inputs) {
  NetworkMaker b(13, 9, kWidth, 7);
  for (std::int64_t layer = 0; layer < 2; ++layer) append_layer(b, layer);
  if (inputs == 1) {
    b.network.input = {b.product(b.all(b.network.frame), b.all(b.network.hidden), true)};
  } else {
    const core::VectorId between = b.vector("between", 40);
    core::Product first = b.product(b.all(b.network.frame), b.all(between), true);
    first.relu = true;
    b.network.input = {first, b.product(b.all(between), b.all(b.network.hidden), true)};
  }
  b.network.output = {b.product(b.all(b.network.hidden), b.all(b.network.outs), true)};
  return b.policy();
}

TEST_CASE("a network that the kernels for windows do not take has no such kernel", "[cuda][policy][window]") {
  cuda::DeviceProperties device;
  device.compute_major = 8, device.multiprocessors = 100, device.max_shared_per_block = 200 << 10;
  const cuda::PolicyDims taken(with_inputs(1)->config), refused(with_inputs(2)->config);
  CHECK(policy::WindowPlan(taken.network()).fits);
  CHECK(cuda::window_candidates(device, taken, {}).size() == 1);
  CHECK_FALSE(policy::WindowPlan(refused.network()).fits);
  CHECK(policy::window_shared_bytes(refused.network()) == 0);
  CHECK(cuda::window_candidates(device, refused, {}).empty());
}

TEST_CASE("windows of odd networks on an emulated GPU", "[.emulated_odd_windows]") {
  emulate_launches();
  for (const int inputs : {1, 2}) {
    CAPTURE(inputs);
    const Weights weights = with_inputs(inputs);
    const auto policy = load_on_device(weights, 16);
    const int before = emulated_launches("policy_window");
    check_policy_form(*policy, *weights, 9, {2, 5});
    CHECK((emulated_launches("policy_window") > before) == (inputs == 1));
  }
}

TEST_CASE("windows of odd networks run without a GPU", "[cuda][policy][emulated][window]") {
  require_emulated("[.emulated_odd_windows]");
}

TEST_CASE("odd networks on the GPU", "[cuda][gpu][policy][window]") {
  if (!have_device()) return;
  for (const int inputs : {1, 2}) {
    CAPTURE(inputs);
    const Weights weights = with_inputs(inputs);
    check_policy_form(*load_on_device(weights, 400), *weights, 40, {2, 9, 300});
  }
}

}  // namespace
}  // namespace exphil::test
