#include "cuda/policy/dims.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <variant>

#include "cuda/device/stream_copy.hpp"
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

bool PolicyDims::stream_frames(const float* frames, std::int64_t count, float* to) const {
  return stream_rows(to, static_cast<std::size_t>(frame_size()), frames,
                     static_cast<std::size_t>(config.d_input), static_cast<std::size_t>(count));
}

bool PolicyDims::decays(std::int64_t frames) const {
  return core::decays_input(config.network, frames);
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
