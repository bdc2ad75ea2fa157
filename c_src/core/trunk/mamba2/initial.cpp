#include "core/trunk/initial.hpp"

#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "core/exact_math.hpp"
#include "core/limits.hpp"
#include "core/trunk/mamba2/description.hpp"
#include "core/trunk/mamba2/mamba2.hpp"

namespace exphil::core::mamba2 {

namespace {

Sizes sizes_of(const std::string& trunk, SizeReader& given, Settings* settings) {
  Sizes s;
  std::int64_t headdim = 0;
  s.ends = take_mixer_ends(given);
  s.heads = take_heads(given, s.ends.d_model, &headdim);
  s.d_inner = s.d_ssm = s.heads * headdim;
  s.d_state = given.take("d_state", kMaxState, 128);
  s.d_conv = given.take("d_conv", kMaxTaps, 4);
  settings->groups = given.take("ngroups", kMaxDim, 1);
  given.require_all_taken(trunk);
  require_groups(settings->groups, s.heads);
  s.channels = s.d_ssm + 2 * settings->groups * s.d_state;
  s.skips = s.heads;
  s.conv_bias = s.norm = true;
  return s;
}

}  // namespace

// As state-spaces/mamba does: mamba_ssm/modules/mamba2.py.
std::vector<InitialTensor> initial_weights(const std::string& trunk, SizeReader given,
                                           const Initializer& draw) {
  Settings settings;
  const Sizes s = sizes_of(trunk, given, &settings);
  const auto own = [&](const PolicyParameter& tensor) -> std::optional<std::vector<float>> {
    if (ends_with(tensor.name, "A_log")) {
      return draw.drawn(tensor.name, tensor.shape, [](double u) { return exact_log(1 + 15 * u); });
    }
    if (!ends_with(tensor.name, "conv1d.bias")) return std::nullopt;
    return draw.uniform(tensor.name, tensor.shape, 1 / std::sqrt(static_cast<double>(s.d_conv)));
  };
  return initial_mixers(describe(s, settings), s.ends, draw, own);
}

}  // namespace exphil::core::mamba2
