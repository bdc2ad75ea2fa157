#include "core/associative/widen.hpp"

#include "core/half.hpp"
#include "core/work/parallel.hpp"

namespace exphil::core {

std::vector<float> widen(const void* data, Dtype dtype, std::int64_t elements) {
  std::vector<float> out(static_cast<std::size_t>(elements * (dtype == Dtype::c64 ? 2 : 1)));
  const auto* halves = static_cast<const std::uint16_t*>(data);
  parallel_for(static_cast<std::int64_t>(out.size()), kGrainElements, [&](std::int64_t i, std::int64_t end) {
    for (; i < end; ++i) {
      out[i] = dtype == Dtype::f16    ? f16_to_f32(halves[i])
               : dtype == Dtype::bf16 ? bf16_to_f32(halves[i])
                                      : static_cast<const float*>(data)[i];
    }
  });
  return out;
}

void narrow(const std::vector<float>& from, Dtype dtype, void* to) {
  auto* halves = static_cast<std::uint16_t*>(to);
  parallel_for(static_cast<std::int64_t>(from.size()), kGrainElements, [&](std::int64_t i, std::int64_t end) {
    for (; i < end; ++i) {
      if (dtype == Dtype::f16) {
        halves[i] = f32_to_f16(from[i]);
      } else if (dtype == Dtype::bf16) {
        halves[i] = f32_to_bf16(from[i]);
      } else {
        static_cast<float*>(to)[i] = from[i];
      }
    }
  });
}

}  // namespace exphil::core
