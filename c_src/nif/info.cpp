// Describes this machine, and applies the settings of the entire library.
#include <mutex>
#include <optional>

#include "core/environment.hpp"
#include "core/work/parallel.hpp"
#include "nif/functions.hpp"
#include "nif/option_reader.hpp"
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
bool same(const Config& a, const Config& b) {
  const auto fields = [](const Config& c) {
    return std::tie(c.kernels, c.cache, c.libcuda, c.libnvrtc, c.pinned_limit, c.threads);
  };
  return fields(a) == fields(b);
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

Config Decoder<Config>::decode(Call& call, Term term, const char* argument) {
  OptionReader reader(call, term, argument);
  Config config;
  config.kernels = reader.take<std::string>("kernels").value_or("");
  config.cache = reader.take<std::string>("cache").value_or("");
  config.libcuda = reader.take<std::string>("libcuda").value_or("");
  config.libnvrtc = reader.take<std::string>("libnvrtc").value_or("");
  config.pinned_limit = reader.take<std::int64_t>("pinned_limit").value_or(0);
  config.threads = reader.take<std::int64_t>("threads").value_or(0);
  reader.finish();
  return config;
}

Term configure(Call& call, Config given) {
  static std::mutex* const mutex = new std::mutex;  // leaked: calls may come until the process ends
  static auto* const current = new std::optional<Config>;
  const std::lock_guard<std::mutex> lock(*mutex);
  const Term nil = encode_atom(call, "nil");
  if (*current && same(**current, given)) return nil;

  require_range(":pinned_limit", given.pinned_limit, core::kMostPinned, "the default");
  require_threads(given.threads);
  const auto from_environment = core::environment_number("EXPHIL_NATIVE_THREADS", 0, kMaxThreads);
  core::pinned_limit_from_environment();
#ifdef EXPHIL_CUDA
  cuda::Settings settings;
  settings.kernels_directory = given.kernels;
  settings.cache_directory = given.cache;
  settings.libcuda = given.libcuda;
  settings.libnvrtc = given.libnvrtc;
  if (given.pinned_limit > 0) settings.pinned_limit = static_cast<std::size_t>(given.pinned_limit);
  cuda::set_settings(settings);
#endif
  core::set_threads(static_cast<int>(from_environment.value_or(given.threads)));
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
