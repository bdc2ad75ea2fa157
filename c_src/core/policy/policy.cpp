#include "core/policy/policy.hpp"

#include <algorithm>
#include <vector>

namespace exphil::core {

void Policy::advance_rows(State* const* from, State* const* to, std::int64_t count, const std::int64_t* rows,
                          const float* obs, float* out) {
  const std::int64_t width = config().d_input, outputs = config().d_output;
  std::vector<float> own_obs(static_cast<std::size_t>(count * width));
  std::vector<float> own_out(static_cast<std::size_t>(count * outputs));
  for (std::int64_t i = 0; i < count; ++i)
    std::copy_n(obs + rows[i] * width, width, own_obs.data() + i * width);
  advance(from, to, count, own_obs.data(), own_out.data());
  for (std::int64_t i = 0; i < count; ++i)
    std::copy_n(own_out.data() + i * outputs, outputs, out + rows[i] * outputs);
}

}  // namespace exphil::core
