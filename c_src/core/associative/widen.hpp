// Halves as f32 and back, for gradients: they are computed in f32 and rounded once. Distributed over the
// library's threads; the bits do not depend on their number. Any thread. Callers: the gradients of
// associative scans.
#pragma once

#include <cstdint>
#include <vector>

#include "core/tensor.hpp"

namespace exphil::core {

// The elements of an f32, f16 or bf16 tensor; of c64, pairs.
std::vector<float> widen(const void* data, Dtype dtype, std::int64_t elements);
void narrow(const std::vector<float>& from, Dtype dtype, void* to);

// Elements of one piece of work for parallel_for: some tens of microseconds.
inline constexpr std::int64_t kGrainElements = 32768;

}  // namespace exphil::core
