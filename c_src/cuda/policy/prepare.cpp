#include "cuda/policy/prepare.hpp"

#include <vector>

#include "cuda/policy/rows.hpp"
#include "cuda/policy/team.hpp"
#include "cuda/policy/window.hpp"

namespace exphil::cuda {

bool prepare_kernels(Context& context, const PolicyDims& dims, const PolicyTuning& tuning) {
  std::vector<KernelSpec> specs = row_modules(context.properties(), dims, tuning);
  for (const WindowShape& shape : window_candidates(context.properties(), dims, tuning)) {
    specs.push_back(shape.kernel(dims));
  }
  for (const int agents : {1, tuning.batch_agents}) {
    const std::vector<TeamShape> shapes = team_candidates(context.properties(), dims, tuning, agents);
    if (!shapes.empty()) specs.push_back(team_kernel(dims, shapes.front()));
  }
  context.kernels().prepare(specs);
  return true;
}

}  // namespace exphil::cuda
