// What this machine has, and the settings that hold for the whole library.
#include "core/parallel.hpp"
#include "nif/functions.hpp"
#ifdef EXPHIL_CUDA
#include "cuda/device/settings.hpp"
#endif

namespace exphil::nif {

namespace {

constexpr std::int64_t kMaxThreads = 1024;

}  // namespace

Term encode_device(Call& call, const core::DeviceDescription& device) {
  Map details;
  for (const auto& [key, value] : device.details) details.emplace_back(Atom{key}, encode(call, value));
  return encode(call, Map{{{"backend"}, encode_atom(call, device.backend.c_str())},
                          {{"index"}, encode_integer(call, device.index)},
                          {{"name"}, encode(call, device.name)},
                          {{"details"}, encode(call, details)}});
}

Term configure(Call& call, SettingsTuple given) {
  const std::int64_t pinned_limit = std::get<4>(given);
  if (pinned_limit < 0) {
    core::fail(core::ErrorKind::invalid_argument, ":pinned_limit", ":pinned_limit must not be negative, got ",
               pinned_limit);
  }
#ifdef EXPHIL_CUDA
  cuda::Settings settings;
  settings.kernels_directory = std::get<0>(given);
  settings.cache_directory = std::get<1>(given);
  settings.libcuda = std::get<2>(given);
  settings.libnvrtc = std::get<3>(given);
  if (pinned_limit > 0) settings.pinned_limit = static_cast<std::size_t>(pinned_limit);
  cuda::set_settings(settings);
#endif
  return set_threads(call, std::get<5>(given));
}

Term info(Call& call) {
  const CudaStatus& cuda = cuda_status();
  std::vector<Term> devices;
  for (const core::DeviceDescription& device : cuda.devices) devices.push_back(encode_device(call, device));
  const Term reason = cuda.reason.empty() ? encode_atom(call, "nil") : encode(call, cuda.reason);
  const core::DeviceDescription host = open_backend(BackendChoice::host, 0).describe();
  return encode(call, Map{{{"host"}, encode_device(call, host)},
                          {{"cuda_devices"}, encode_list(call, devices)},
                          {{"cuda_reason"}, reason},
                          {{"threads"}, encode_integer(call, core::threads())}});
}

Term default_device(Call& call, BackendChoice choice, std::int64_t device) {
  return encode_device(call, open_backend(choice, device).describe());
}

Term set_threads(Call& call, std::int64_t threads) {
  if (threads < 0 || threads > kMaxThreads) {
    core::fail(core::ErrorKind::invalid_argument, ":threads",
               ":threads must be from 0 (the machine's cores) to ", kMaxThreads, ", got ", threads);
  }
  core::set_threads(static_cast<int>(threads));
  return encode_atom(call, "ok");
}

}  // namespace exphil::nif
