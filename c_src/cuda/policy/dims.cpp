#include "cuda/policy/dims.hpp"

#include "core/error.hpp"
#include "cuda/jit/kernel_spec.hpp"

namespace exphil::cuda {
namespace {

// For larger dimensions the 32-bit offsets within one layer's weights could overflow.
constexpr std::int64_t kMostDim = 1 << 14;
constexpr std::int64_t kMostState = 1024;

void require_at_most(std::int64_t value, std::int64_t limit, const char* name) {
  if (value > limit) {
    core::fail(core::ErrorKind::limit_exceeded, "", "the CUDA backend takes policies with ", name, " up to ",
               limit, ", this one has ", value);
  }
}

}  // namespace

PolicyDims::PolicyDims(const core::PolicyConfig& c) : config(c) {
  require_at_most(c.d_model, kMostDim, "d_model");
  require_at_most(c.d_inner, kMostDim, "d_inner");
  require_at_most(c.d_input, kMostDim, "d_input");
  require_at_most(c.d_output, kMostDim, "d_output");
  require_at_most(c.dt_rank, 1024, "dt_rank");
  require_at_most(c.d_state, kMostState, "d_state");
  require_at_most(c.d_conv, 16, "d_conv");
  require_at_most(c.n_layer, 256, "n_layer");
  d_model = static_cast<int>(c.d_model), d_inner = static_cast<int>(c.d_inner);
  d_state = static_cast<int>(c.d_state), d_conv = static_cast<int>(c.d_conv);
  dt_rank = static_cast<int>(c.dt_rank), n_layer = static_cast<int>(c.n_layer);
  d_input = static_cast<int>(c.d_input), d_output = static_cast<int>(c.d_output);
}

std::vector<std::string> PolicyDims::defines() const {
  return {define("D_MODEL", d_model),   define("D_INNER", d_inner), define("D_STATE", d_state),
          define("D_CONV", d_conv),     define("DT_RANK", dt_rank), define("D_INPUT", d_input),
          define("D_OUTPUT", d_output), define("N_LAYER", n_layer)};
}

std::vector<std::string> TeamShape::defines(const PolicyDims& dims) const {
  std::vector<std::string> all = dims.defines();
  all.insert(all.end(), {define("TEAM", team), define("THREADS", threads), define("AGENTS", agents),
                         define("CLUSTER", cluster ? 1 : 0), define("STAGED", staged ? 1 : 0)});
  return all;
}

policy::ActivationLayout TeamShape::activations(const PolicyDims& dims) const {
  return policy::ActivationLayout(dims, policy::Share(dims, team), agents);
}

long long TeamShape::shared_bytes(const PolicyDims& dims) const {
  return (staged ? policy::TeamLayout(dims, team).staged_bytes : 0) + activations(dims).bytes;
}

}  // namespace exphil::cuda
