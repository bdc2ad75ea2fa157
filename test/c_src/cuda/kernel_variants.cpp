// See kernel_variants.hpp. A new kernel family adds its list here.
#include "cuda/kernel_variants.hpp"

#include <set>
#include <tuple>

#include "cuda/associative/variants.hpp"
#include "cuda/policy/variants.hpp"
#include "cuda/recurrent/dense.hpp"
#include "cuda/recurrent/linear.hpp"
#include "cuda/recurrent/walk.hpp"
#include "cuda/scan/variants.hpp"
#include "cuda/semiseparable/layer.hpp"
#include "cuda/ssd/scan.hpp"

namespace exphil::cuda {

std::vector<KernelSpec> all_kernel_variants() {
  std::vector<KernelSpec> all;
  std::set<std::tuple<std::string, std::string, std::vector<std::string>>> seen;
  for (const std::vector<KernelSpec>& family :
       {scan_kernel_variants(), policy_kernel_variants(), associative_kernel_variants(),
        semiseparable_kernel_variants(), recurrent_kernel_variants(), linear_kernel_variants(),
        dense_kernel_variants(), ssd_kernel_variants()}) {
    for (const KernelSpec& spec : family) {
      if (seen.emplace(spec.file, spec.entry, spec.defines).second) all.push_back(spec);
    }
  }
  return all;
}

}  // namespace exphil::cuda
