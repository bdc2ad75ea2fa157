// Policies' files of every kind, opened and loaded: safetensors, Edifice's containers, ExPhil's terms.
#include "core/checkpoint/checkpoint.hpp"
#include "core/trunk/load.hpp"
#include "guards.hpp"
#include "safetensors_mutator.hpp"
#include "term_mutator.hpp"

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t most,
                                               unsigned seed) {
  const bool safetensors = size > 8 && data[8] == '{';  // behind its 8 bytes of length
  return safetensors ? exphil::fuzz::mutate_safetensors(data, size, most, seed)
                     : exphil::fuzz::mutate_terms(data, size, most, seed);
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace exphil;
  const std::string& path = fuzz::as_file(data, size);
  fuzz::run_guarded(size, [&] {
    core::PolicyLoadOptions options;
    options.check_finite = size % 2 == 0;
    if (size % 3 == 0) options.trunk = {{"dialect", "edifice_mamba"}};
    core::load_weights(core::Checkpoint::open(path), options);
  });
  return 0;
}
