// Exported states: what is imported is exactly what export wrote, and anything else is an error.
#include <cstring>
#include <vector>

#include "core/hash.hpp"
#include "core/session/state_codec.hpp"
#include "guards.hpp"

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t most);

namespace {

constexpr std::uint64_t kFingerprint = 0x0123456789abcdee;  // even: a carried state; odd: a window's
constexpr std::size_t kFingerprintAt = 16;

// The last bit of the fingerprint in the bytes decides which policy they are imported into.
bool windowed(const std::uint8_t* data, std::size_t size) {
  return size > kFingerprintAt && data[kFingerprintAt] % 2 == 1;
}

exphil::core::PolicyConfig config(bool window) {
  exphil::core::PolicyConfig config;
  config.d_input = 3;
  for (const std::int64_t columns : {3, 4}) {
    for (std::int64_t layer : {0, 1}) config.network.states.push_back({"part", layer, 6, columns});
  }
  config.state_signature = {2, 6, 3, 5};
  if (window) config.window = 5;
  return config;
}

std::vector<std::uint8_t> exported(bool window, bool played) {
  const exphil::core::PolicyConfig policy = config(window);
  exphil::core::StateValues values;
  if (window) {
    values.frames = std::vector<float>(6, 0.25f);
  } else {
    values.carried.resize(static_cast<std::size_t>(policy.state_floats()), 0.5f);
  }
  if (played) values.play.frame = 7;
  return exphil::core::encode_state(policy, kFingerprint + (window ? 1 : 0), values);
}

}  // namespace

// The checksum is made right again most of the time: otherwise nothing behind it is ever reached.
extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t most,
                                               unsigned seed) {
  if (size < kFingerprintAt) {
    const std::vector<std::uint8_t> bytes = exported(seed % 2 == 1, seed % 4 > 1);
    if (bytes.size() > most) return 0;
    std::memcpy(data, bytes.data(), bytes.size());
    return bytes.size();
  }
  size = LLVMFuzzerMutate(data, size, most);
  if (seed % 8 != 0 && size >= sizeof(std::uint64_t)) {
    const std::uint64_t sum = exphil::core::hash64(data, size - sizeof(std::uint64_t));
    std::memcpy(data + size - sizeof sum, &sum, sizeof sum);
  }
  return size;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace exphil;
  fuzz::run_guarded(size, [&] {
    const bool window = windowed(data, size);
    const std::uint64_t fingerprint = kFingerprint + (window ? 1 : 0);
    const core::StateValues values = core::decode_state(config(window), fingerprint, data, size);
    const std::vector<std::uint8_t> once = core::encode_state(config(window), fingerprint, values);
    const core::StateValues again = core::decode_state(config(window), fingerprint, once.data(), once.size());
    if (core::encode_state(config(window), fingerprint, again) != once) __builtin_trap();
  });
  return 0;
}
