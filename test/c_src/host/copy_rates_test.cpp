#include "host/copy_rates.hpp"

#include "support/catch.hpp"

using namespace exphil;

// The rate depends on the machine; any machine can show that it was measured.
TEST_CASE("the host's copy rate is plausible") {
  const core::CopyRates rates = host::measure_copy_rates();
  CHECK(rates.memory > 1e7);
  CHECK(rates.memory < 1e14);
  CHECK(rates.to_device == rates.memory);
  CHECK(rates.from_device == rates.memory);
}
