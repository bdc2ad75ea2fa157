#include "host/backend.hpp"

#include <cstring>

#include "core/work/parallel.hpp"
#include "host/simd/simd.hpp"
#include "support/catch.hpp"
#include "support/numbers.hpp"
#include "support/policy.hpp"
#include "support/scan_case.hpp"

namespace exphil {

TEST_CASE("the host backend describes itself", "[host][backend]") {
  const auto backend = host::host_backend();
  CHECK(backend == host::host_backend());
  const core::DeviceDescription description = backend->describe();
  CHECK(description.backend == "host");
  CHECK(description.index == 0);
  CHECK(description.name.find(host::simd_target()) != std::string::npos);
  bool threads_found = false;
  for (const auto& [key, value] : description.details) {
    CHECK_FALSE(value.empty());
    if (key == "threads") threads_found = value == std::to_string(core::threads());
  }
  CHECK(threads_found);
}

TEST_CASE("the host backend scans into its own result memory", "[host][backend]") {
  const auto backend = host::host_backend();
  const test::ScanCase scan(test::ScanSpec{});
  core::ScanCall call = scan.call();
  const auto count = static_cast<std::size_t>(call.shape.y_elements());
  const core::ResultBuffer y = backend->allocate_result(count * sizeof(float));
  REQUIRE(y.data() != nullptr);
  call.set(core::ScanOperand::y, y.data());
  backend->scan(call);
  const test::ScanExpected expected = test::expect(call);
  CHECK(test::relative_error(static_cast<const float*>(y.data()), expected.y.data(), count) <= 1e-5);
}

TEST_CASE("the host backend loads a policy", "[host][backend]") {
  const auto weights = test::make_policy(test::PolicySpec{});
  const auto policy = host::host_backend()->load(weights, core::PolicyOptions{});
  CHECK(policy->fingerprint() == weights->fingerprint);
  CHECK(policy->config().state_floats() == weights->config.state_floats());
}

}  // namespace exphil
