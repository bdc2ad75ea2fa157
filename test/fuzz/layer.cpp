// The weights of an adaptive-rank semiseparable layer, from a file.
#include "core/checkpoint/safetensors.hpp"
#include "core/semiseparable/weights.hpp"
#include "guards.hpp"
#include "safetensors_mutator.hpp"

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t most,
                                               unsigned seed) {
  return exphil::fuzz::mutate_safetensors(data, size, most, seed);
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string& path = exphil::fuzz::as_file(data, size);
  exphil::fuzz::run_guarded(
      size, [&] { exphil::core::load_semiseparable(exphil::core::Safetensors::open(path), size % 2 == 0); });
  return 0;
}
