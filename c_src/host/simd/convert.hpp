// Rows of f32, f16 or bf16 as floats, and back: halves are rounded to nearest even. Used by host/recurrent
// and host/ssd. Any thread.
#pragma once

#include <cstdint>

#include "core/tensor.hpp"

namespace exphil::host {

// `to` receives zeros behind the last element, up to a multiple of kPanel.
void widen_row(core::Dtype dtype, const void* from, std::int64_t count, float* to);
// `from` is readable up to a multiple of kPanel.
void narrow_row(core::Dtype dtype, const float* from, std::int64_t count, void* to);

}  // namespace exphil::host
