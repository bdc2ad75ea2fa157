// Safetensors files: opening one either gives tensors whose bytes are all inside the file, or an error of bad
// input.
#include "core/checkpoint/safetensors.hpp"

#include "guards.hpp"
#include "safetensors_mutator.hpp"

namespace {

// Every byte is read, so that the sanitizer sees a view that leaves the file.
void read_all(const exphil::core::Safetensors& file) {
  unsigned sum = 0;
  for (const auto& [name, view] : file.tensors()) {
    exphil::core::check_bytes(view, "x");
    const auto* bytes = static_cast<const unsigned char*>(view.data);
    for (std::size_t i = 0; i < view.bytes; ++i) sum += bytes[i];
  }
  static volatile unsigned sink;
  sink = sink + sum;
}

}  // namespace

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t most,
                                               unsigned seed) {
  return exphil::fuzz::mutate_safetensors(data, size, most, seed);
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string& path = exphil::fuzz::as_file(data, size);
  exphil::fuzz::run_guarded(size, [&] { read_all(exphil::core::Safetensors::open(path)); });
  return 0;
}
