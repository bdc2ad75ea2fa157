#include "core/dt_options.hpp"

#include <cmath>

#include "core/error.hpp"

namespace exphil::core {

void check_dt_range(const DtOptions& options) {
  if (std::isnan(options.dt_min) || std::isnan(options.dt_max) || options.dt_min > options.dt_max) {
    fail(ErrorKind::invalid_argument, ":dt_range", ":dt_range must be {min, max} with min at most max; got {",
         options.dt_min, ", ", options.dt_max, "}");
  }
}

}  // namespace exphil::core
