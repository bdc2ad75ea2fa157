// See functions.hpp.
#include "host/copy_rates.hpp"
#include "nif/tools/functions.hpp"
#ifdef EXPHIL_CUDA
#include "cuda/device/copy_rates.hpp"
#endif

namespace exphil::nif {

namespace {

core::CopyRates measure(BackendChoice choice, std::int64_t device) {
  open_backend(choice, device);  // refuses a device that does not exist
#ifdef EXPHIL_CUDA
  if (resolve(choice) == BackendChoice::cuda) return cuda::measure_copy_rates(static_cast<int>(device));
#endif
  return host::measure_copy_rates();
}

}  // namespace

Term copy_rates(Call& call, BackendChoice choice, std::int64_t device) {
  const core::CopyRates rates = measure(choice, device);
  const auto number = [&](double value) { return enif_make_double(call.env(), value); };
  return encode(call, Map{{{"to_device"}, number(rates.to_device)},
                          {{"from_device"}, number(rates.from_device)},
                          {{"memory"}, number(rates.memory)}});
}

}  // namespace exphil::nif
