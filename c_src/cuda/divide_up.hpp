// How many blocks of a launch cover something.
#pragma once

#include <cstdint>

namespace exphil::cuda {

constexpr std::int64_t divide_up(std::int64_t value, std::int64_t by) {
  return (value + by - 1) / by;
}

}  // namespace exphil::cuda
