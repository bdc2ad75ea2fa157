#include "host/copy_rates.hpp"

#include <cmath>

#include "support/catch.hpp"

using namespace exphil;

// The rate depends on the machine and what else runs there; any machine can show that it was measured.
TEST_CASE("the host's copy rate is measured") {
  const core::CopyRates rates = host::measure_copy_rates();
  CHECK(rates.memory > 0);
  CHECK(std::isfinite(rates.memory));
  CHECK(rates.to_device == rates.memory);
  CHECK(rates.from_device == rates.memory);
}
