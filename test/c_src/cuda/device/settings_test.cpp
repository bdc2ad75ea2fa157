// Settings: from config and environment, and the names tried for the libraries.
#include "cuda/device/settings.hpp"

#include <filesystem>

#include "cuda/cuda_test.hpp"
#include "support/catch.hpp"
#include "support/errors.hpp"

namespace exphil::test {
namespace {

using cuda::Settings;

struct KeepSettings {
  Settings before = cuda::settings();
  ~KeepSettings() { cuda::set_settings(before); }
};

TEST_CASE("the environment takes precedence over config", "[cuda][settings]") {
  const KeepSettings keep;
  const Environment kernels("EXPHIL_NATIVE_KERNELS", nullptr);
  const Environment cache("EXPHIL_NATIVE_CACHE", nullptr);
  Settings configured;
  configured.kernels_directory = "/config/kernels";
  configured.cache_directory = "/config/cache";
  configured.pinned_limit = 1000;
  cuda::set_settings(configured);
  CHECK(cuda::settings().kernels_directory == "/config/kernels");
  CHECK(cuda::settings().cache_directory == "/config/cache");
  CHECK(cuda::settings().pinned_limit == 1000);

  const Environment stronger("EXPHIL_NATIVE_KERNELS", "/environment/kernels");
  const Environment limit("EXPHIL_NATIVE_PINNED_LIMIT", "4096");
  CHECK(cuda::settings().kernels_directory == "/environment/kernels");
  CHECK(cuda::settings().cache_directory == "/config/cache");
  CHECK(cuda::settings().pinned_limit == 4096);
}

TEST_CASE("relative folders stay where they are when the process goes to another", "[cuda][settings]") {
  const KeepSettings keep;
  const Environment kernels("EXPHIL_NATIVE_KERNELS", "some/kernels"), cache("EXPHIL_NATIVE_CACHE", "cache");
  const std::string here = std::filesystem::current_path();
  const Settings before = cuda::settings();
  CHECK(before.kernels_directory == here + "/some/kernels");
  CHECK(before.cache_directory == here + "/cache");
  std::filesystem::current_path("/");
  const Settings after = cuda::settings();
  std::filesystem::current_path(here);
  CHECK(after.kernels_directory == before.kernels_directory);
  CHECK(after.cache_directory == before.cache_directory);
}

TEST_CASE("the pinned limit follows the machine's memory where none is given", "[cuda][settings]") {
  const KeepSettings keep;
  const Environment none("EXPHIL_NATIVE_PINNED_LIMIT", nullptr);
  cuda::set_settings(Settings());
  CHECK(cuda::settings().pinned_limit >= std::size_t{512} << 20);
  CHECK(cuda::settings().pinned_limit <= std::size_t{8} << 30);
  const Environment zero("EXPHIL_NATIVE_PINNED_LIMIT", "0");
  CHECK(cuda::settings().pinned_limit >= std::size_t{512} << 20);
}

TEST_CASE("a pinned limit that is not a number is refused with the variable's name", "[cuda][settings]") {
  const KeepSettings keep;
  for (const char* text : {"12x", "-1", "lots", "99999999999999999999999"}) {
    const Environment limit("EXPHIL_NATIVE_PINNED_LIMIT", text);
    for (const CaughtError& error :
         {error_of([] { cuda::settings(); }), error_of([] { cuda::set_settings(Settings()); })}) {
      CHECK(error.thrown);
      CHECK(error.kind == core::ErrorKind::invalid_argument);
      CHECK(error.argument == "EXPHIL_NATIVE_PINNED_LIMIT");
      CHECK(error.says(text));
    }
  }
}

TEST_CASE("the cache folder follows the XDG rule, and is empty without a home", "[cuda][settings]") {
  const KeepSettings keep;
  cuda::set_settings(Settings());
  const Environment cache("EXPHIL_NATIVE_CACHE", nullptr);
  const Environment home("HOME", "/home/player");
  {
    const Environment xdg("XDG_CACHE_HOME", "/fast/cache");
    CHECK(cuda::settings().cache_directory == "/fast/cache/exphil_native");
  }
  {
    const Environment xdg("XDG_CACHE_HOME", "relative");
    CHECK(cuda::settings().cache_directory == "/home/player/.cache/exphil_native");
  }
  const Environment xdg("XDG_CACHE_HOME", nullptr);
  CHECK(cuda::settings().cache_directory == "/home/player/.cache/exphil_native");
  const Environment homeless("HOME", nullptr);
  CHECK(cuda::settings().cache_directory.empty());
}

TEST_CASE("an override is the only library name; otherwise the driver's major comes first",
          "[cuda][settings]") {
  const KeepSettings keep;
  cuda::set_settings(Settings());
  {
    const Environment none("EXPHIL_NATIVE_LIBNVRTC", nullptr);
    const Environment home("CUDA_HOME", "/opt/cuda-12");
    const auto names = cuda::libnvrtc_candidates(12);
    REQUIRE(names.size() > 2);
    CHECK(names[0] == "libnvrtc.so.12");
    CHECK(names[1] == "/opt/cuda-12/lib64/libnvrtc.so.12");
    int thirteen = 0, twelve = 0;
    for (const auto& name : names) {
      thirteen += name == "libnvrtc.so.13";
      twelve += name == "libnvrtc.so.12";
    }
    CHECK(thirteen == 1);
    CHECK(twelve == 1);
    CHECK(cuda::libnvrtc_candidates(0)[0] == "libnvrtc.so");
  }
  const Environment chosen("EXPHIL_NATIVE_LIBNVRTC", "/my/libnvrtc.so");
  CHECK(cuda::libnvrtc_candidates(13) == std::vector<std::string>{"/my/libnvrtc.so"});
  const Environment driver("EXPHIL_NATIVE_LIBCUDA", "/my/libcuda.so");
  CHECK(cuda::libcuda_candidates() == std::vector<std::string>{"/my/libcuda.so"});
}

}  // namespace
}  // namespace exphil::test
