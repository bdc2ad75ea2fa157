// Describes this machine, and applies the settings of the entire library.
#include <mutex>
#include <optional>

#include "core/environment.hpp"
#include "core/work/parallel.hpp"
#include "nif/functions.hpp"
#ifdef EXPHIL_CUDA
#include "cuda/device/settings.hpp"
#include "cuda/jit/disk_cache.hpp"
#endif

namespace exphil::nif {

namespace {

constexpr std::int64_t kMaxThreads = 1024;

void require_range(const char* argument, std::int64_t value, std::int64_t most, const char* zero) {
  if (value >= 0 && value <= most) return;
  core::fail(core::ErrorKind::invalid_argument, argument, argument, " must be from 0 (", zero, ") to ", most,
             ", got ", value);
}
void require_threads(std::int64_t threads) {
  require_range(":threads", threads, kMaxThreads, "the machine's cores");
}

}  // namespace

Term encode_device(Call& call, const core::DeviceDescription& device) {
  Map details;
  for (const auto& [key, value] : device.details) details.emplace_back(Atom{key}, encode(call, value));
  return encode(call, Map{{{"backend"}, encode_atom(call, device.backend.c_str())},
                          {{"index"}, encode_integer(call, device.index)},
                          {{"name"}, encode(call, device.name)},
                          {{"details"}, encode(call, details)}});
}

Term configure(Call& call, std::string kernels, std::string cache, std::string libcuda, std::string libnvrtc,
               std::int64_t pinned_limit, std::int64_t threads) {
  using Config = std::tuple<std::string, std::string, std::string, std::string, std::int64_t, std::int64_t>;
  static std::mutex* const mutex = new std::mutex;  // leaked: calls may come until the process ends
  static auto* const current = new std::optional<Config>;
  Config given{kernels, cache, libcuda, libnvrtc, pinned_limit, threads};
  const std::lock_guard<std::mutex> lock(*mutex);
  const Term nil = encode_atom(call, "nil");
  if (*current == given) return nil;

  require_range(":pinned_limit", pinned_limit, core::kMostPinned, "the default");
  require_threads(threads);
  const auto from_environment = core::environment_number("EXPHIL_NATIVE_THREADS", 0, kMaxThreads);
  core::pinned_limit_from_environment();
#ifdef EXPHIL_CUDA
  cuda::Settings settings;
  settings.kernels_directory = std::move(kernels);
  settings.cache_directory = std::move(cache);
  settings.libcuda = std::move(libcuda);
  settings.libnvrtc = std::move(libnvrtc);
  if (pinned_limit > 0) settings.pinned_limit = static_cast<std::size_t>(pinned_limit);
  cuda::set_settings(settings);
#endif
  core::set_threads(static_cast<int>(from_environment.value_or(threads)));
  *current = std::move(given);
#ifdef EXPHIL_CUDA
  const std::string refusal = cuda::DiskCache(cuda::settings().cache_directory).refusal();
  if (!refusal.empty()) return encode(call, refusal);
#endif
  return nil;
}

Term info(Call& call) {
  const CudaStatus& cuda = cuda_status();
  std::vector<Term> devices;
  for (const core::DeviceDescription& device : cuda.devices) devices.push_back(encode_device(call, device));
  const Term reason = cuda.reason.empty() ? encode_atom(call, "nil") : encode(call, cuda.reason);
  const char* automatic = resolve(BackendChoice::automatic) == BackendChoice::cuda ? "cuda" : "host";
  const core::DeviceDescription host = open_backend(BackendChoice::host, 0).describe();
  return encode(call, Map{{{"host"}, encode_device(call, host)},
                          {{"cuda_devices"}, encode_list(call, devices)},
                          {{"cuda_reason"}, reason},
                          {{"automatic"}, encode_atom(call, automatic)},
                          {{"threads"}, encode_integer(call, core::threads())}});
}

Term default_device(Call& call, BackendChoice choice, std::int64_t device) {
  return encode_device(call, open_backend(choice, device).describe());
}

Term set_threads(Call& call, std::int64_t threads) {
  require_threads(threads);
  core::set_threads(static_cast<int>(threads));
  return encode_atom(call, "ok");
}

}  // namespace exphil::nif
