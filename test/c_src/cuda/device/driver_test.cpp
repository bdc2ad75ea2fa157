// The errors where there is no driver, a broken one, no device, or one that is too old. The cases tagged
// [.fake_...] run in child processes, each over its own driver.
#include "cuda/device/driver.hpp"

#include "cuda/backend.hpp"
#include "cuda/cuda_test.hpp"
#include "cuda/device/context.hpp"
#include "support/catch.hpp"

namespace exphil::test {
namespace {

using core::ErrorKind;

// Every entry point gives the same error: reason, devices, open.
void check_unavailable(const std::string& part) {
  const std::string reason = cuda::cuda_unavailable_reason();
  INFO(reason);
  CHECK(contains(reason, part));
  for (int attempt = 0; attempt < 2; ++attempt) {
    const core::Error error = thrown_by([] { cuda::open_cuda_backend(0); });
    CHECK(error.kind() == ErrorKind::backend_unavailable);
    CHECK(contains(error.what(), part));
  }
}

TEST_CASE("no libcuda: the error lists the names tried", "[.driver_absent]") {
  check_unavailable("/nowhere/libcuda.so.1");
  CHECK(contains(cuda::cuda_unavailable_reason(), "EXPHIL_NATIVE_LIBCUDA"));
  CHECK(contains(cuda::cuda_unavailable_reason(), "No such file"));
  CHECK(cuda::cuda_devices().empty());
}

TEST_CASE("a library that is not a CUDA driver: the error names the missing entry point", "[.driver_wrong]") {
  check_unavailable("lacks cuInit");
  CHECK(cuda::cuda_devices().empty());
}

TEST_CASE("a driver that does not start", "[.fake_broken]") {
  check_unavailable("cuInit returned CUDA_ERROR_NO_DEVICE (100)");
  CHECK(cuda::cuda_devices().empty());
}

TEST_CASE("a driver without devices", "[.fake_none]") {
  check_unavailable("finds no CUDA device");
  CHECK(cuda::cuda_devices().empty());
}

TEST_CASE("a device that is too old is listed, not used", "[.fake_old]") {
  check_unavailable("compute capability 7.0; 7.5 or later is needed");
  const auto devices = cuda::cuda_devices();
  REQUIRE(devices.size() == 1);
  CHECK(devices[0].name == "Fake GPU");
  CHECK(devices[0].details.front() == std::pair<std::string, std::string>("usable", "false"));
  CHECK(fake().calls("cuDevicePrimaryCtxRetain") == 0);
}

TEST_CASE("no NVRTC: reported before anything is opened", "[.fake_no_nvrtc]") {
  check_unavailable("/nowhere/libnvrtc.so");
  CHECK(contains(cuda::cuda_unavailable_reason(), "EXPHIL_NATIVE_LIBNVRTC"));
  CHECK(cuda::cuda_devices().size() == 1);
}

TEST_CASE("a device number that does not exist", "[.fake]") {
  for (const int device : {-1, 1, 99}) {
    const core::Error error = thrown_by([&] { cuda::open_cuda_backend(device); });
    CHECK(error.kind() == ErrorKind::backend_unavailable);
    CHECK(error.argument() == ":device");
    CHECK(contains(error.what(), "this machine has 1"));
  }
}

TEST_CASE("looking at devices creates no context", "[.fake_look]") {
  CHECK(cuda::cuda_unavailable_reason().empty());
  const auto devices = cuda::cuda_devices();
  REQUIRE(devices.size() == 1);
  CHECK(devices[0].backend == "cuda");
  CHECK(fake().calls("cuDevicePrimaryCtxRetain") == 0);
  cuda::Context::open(0);
  cuda::Context::open(0);
  CHECK(fake().calls("cuDevicePrimaryCtxRetain") == 1);
}

TEST_CASE("each missing or broken driver is an error with a reason", "[cuda][driver]") {
  require_passed(run_tests("[driver_absent]", {{"EXPHIL_NATIVE_LIBCUDA", "/nowhere/libcuda.so.1"}}));
  require_passed(run_tests("[driver_wrong]", {{"EXPHIL_NATIVE_LIBCUDA", "libm.so.6"}}));
  require_passed(run_over_fake("[fake_broken]", {{"FAKE_CUDA_INIT", "100"}}));
  require_passed(run_over_fake("[fake_none]", {{"FAKE_CUDA_DEVICES", "0"}}));
  require_passed(run_over_fake("[fake_old]", {{"FAKE_CUDA_CAPABILITY", "70"}}));
  require_passed(run_over_fake("[fake_no_nvrtc]", {{"EXPHIL_NATIVE_LIBNVRTC", "/nowhere/libnvrtc.so"}}));
}

TEST_CASE("the runtime over the fake driver", "[cuda][driver]") {
  if (!have_nvrtc()) return;
  require_passed(run_over_fake("[fake]"));
  require_passed(run_over_fake("[fake_look]"));
  require_passed(run_over_fake("[fake_lost]"));
}

}  // namespace
}  // namespace exphil::test
