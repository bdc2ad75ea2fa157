#include "core/trunk/initial.hpp"

#include <optional>
#include <string>
#include <vector>

#include "core/limits.hpp"
#include "core/trunk/mamba3/description.hpp"
#include "core/trunk/mamba3/mamba3.hpp"

namespace exphil::core::mamba3 {

namespace {

constexpr double kRopeFraction = 0.5;

Sizes sizes_of(const std::string& trunk, SizeReader& given) {
  Sizes s;
  s.ends = take_mixer_ends(given);
  s.heads = take_heads(given, s.ends.d_model, &s.headdim);
  s.d_state = given.take("d_state", kMaxState, 128);
  s.groups = given.take("ngroups", kMaxDim, 1);
  s.mimo = given.has("mimo_rank");
  s.ranks = given.take("mimo_rank", formulas::kMaxRanks, 1);
  given.require_all_taken(trunk);
  require_groups(s.groups, s.heads);
  s.angles = angles_of(s.d_state, kRopeFraction);
  if (s.angles < 1) {
    fail(ErrorKind::invalid_argument, ":d_state", ":d_state is ", s.d_state,
         ", of which no pair is rotated; the least is 4");
  }
  return s;
}

}  // namespace

// As state-spaces/mamba does: mamba_ssm/modules/mamba3.py.
std::vector<InitialTensor> initial_weights(const std::string& trunk, SizeReader given,
                                           const Initializer& draw) {
  const Sizes s = sizes_of(trunk, given);
  const auto own = [&](const PolicyParameter& tensor) -> std::optional<std::vector<float>> {
    const auto is = [&](const char* end) { return ends_with(tensor.name, end); };
    if (is("B_bias") || is("C_bias") || is("mimo_z")) return Initializer::constant(tensor.shape, 1);
    if (!is("mimo_x") && !is("mimo_o")) return std::nullopt;
    return Initializer::constant(tensor.shape, 1 / static_cast<float>(s.ranks));
  };
  return initial_mixers(describe(s), s.ends, draw, own);
}

}  // namespace exphil::core::mamba3
