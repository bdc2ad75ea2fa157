// How the matrices of a policy are stored, and the one definition of how a weight is rounded to that: the
// backends store what these functions give, and the reference runs with the rounded values.
//
// tf32x3 stores them as f32 does. It lets CUDA multiply on tensor cores, where each f32 is the sum of two
// tf32 (kernels/common/tensor.cuh); a CPU has none, and computes as in f32.
//
// int8 is symmetric with a scale for each row: a weight is q * scale with q from -127 to 127. The scale has
// 17 significant bits, so that q * scale is exact in f32. Rounding is idempotent: a matrix that was rounded
// gives the same q and the same scales again.
//
// Pure functions; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace exphil::core {

enum class Precision { f32, bf16, f16, int8, tf32x3 };

const char* precision_name(Precision precision);  // "f32"
bool parse_precision(const std::string& name, Precision* precision);
int stored_bytes(Precision precision);  // of one weight
bool stores_f32(Precision precision);   // no weight is rounded

// The factor of a row of `columns` finite values: 1 except for int8. 0 where the row is stored as zeros,
// because no value of it reaches 2^-100.
float row_scale(Precision precision, const float* row, std::int64_t columns);

// The bits of a weight of a row with this scale, in the low bytes. int8: two's complement.
std::uint32_t stored_bits(Precision precision, float value, float scale);
// Those of `count` weights, one after another in stored_bytes() each, little-endian.
void store_weights(Precision precision, const float* values, std::int64_t count, float scale, void* to);
float stored_value(Precision precision, std::uint32_t bits, float scale);

// The bits of a state, in f32, f16 or bf16. f16 limits it to -65504 and 65504.
std::uint32_t stored_state(Precision states, float value);

// Rounds a matrix {rows, columns} in place. `name` is for the error: limit_exceeded where a finite value is
// beyond f16, or where a value of int8 is not finite.
void round_rows(Precision precision, std::int64_t columns, const std::string& name,
                std::vector<float>* matrix);

}  // namespace exphil::core
