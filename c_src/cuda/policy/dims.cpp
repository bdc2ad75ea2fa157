#include "cuda/policy/dims.hpp"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <variant>

#include "cuda/jit/kernel_spec.hpp"

namespace exphil::cuda {

PolicyDims::PolicyDims(const core::PolicyConfig& given) : config(given), lowered(lower(given)) {}

void PolicyDims::pad_frames(const float* frames, std::int64_t count, float* to) const {
  const auto width = static_cast<std::size_t>(config.d_input), row = static_cast<std::size_t>(frame_size());
  for (std::int64_t i = 0; i < count; ++i, frames += width, to += row) {
    std::memcpy(to, frames, width * sizeof(float));
    std::fill(to + width, to + row, 0.0f);
  }
}

// Intrinsics, because the Highway of Debian 12 has streaming stores only above the baseline of x86-64.
void PolicyDims::stream_frames(const float* frames, std::int64_t count, float* to) const {
#if defined(__SSE2__)
  const auto width = static_cast<std::size_t>(config.d_input), row = static_cast<std::size_t>(frame_size());
  const std::size_t whole = width / 4 * 4;
  for (std::int64_t i = 0; i < count; ++i, frames += width, to += row) {
    for (std::size_t k = 0; k < whole; k += 4) _mm_stream_ps(to + k, _mm_loadu_ps(frames + k));
    float rest[4] = {};
    std::copy(frames + whole, frames + width, rest);
    for (std::size_t k = whole; k < row; k += 4) {
      _mm_stream_ps(to + k, k == whole ? _mm_loadu_ps(rest) : _mm_setzero_ps());
    }
  }
#else
  pad_frames(frames, count, to);
#endif
}

bool PolicyDims::decays(std::int64_t frames) const {
  for (const core::Phase& phase : config.network.layers.front()) {
    const auto* const scan = std::get_if<core::SelectiveScan>(&phase);
    if (scan != nullptr && core::decays_input(*scan, frames)) return true;
  }
  return false;
}

bool PolicyDims::carried_decays() const {
  return decays(config.window);
}

std::vector<std::string> PolicyDims::defines() const {
  return {"NETWORK=" + text_of(network())};
}

std::vector<std::string> TeamShape::defines(const PolicyDims& dims) const {
  std::vector<std::string> all = dims.defines();
  all.insert(all.end(), {define("TEAM", team), define("THREADS", threads), define("AGENTS", agents),
                         define("CLUSTER", cluster ? 1 : 0), define("STAGED", staged),
                         define("COUNTS", counts ? 1 : 0), define("ARMED", armed ? 1 : 0)});
  return all;
}

policy::TeamLayout TeamShape::weights(const PolicyDims& dims) const {
  return policy::TeamLayout(dims.network(), policy::TeamPlan(dims.network()), team);
}

policy::ActivationLayout TeamShape::activations(const PolicyDims& dims) const {
  return policy::ActivationLayout(dims.network(), policy::TeamPlan(dims.network()), team, agents);
}

long long TeamShape::shared_bytes(const PolicyDims& dims) const {
  return weights(dims).staged(staged, dims.network().layers) + activations(dims).bytes;
}

}  // namespace exphil::cuda
