// Sums and transposes of rows of floats, for gradients over many rows. Used by host/policy and host/simd. Any
// thread.
#pragma once

#include <cstdint>

namespace exphil::host {

// sums += every row, one after another, for panels [begin, end) of rows of `step` floats.
void add_rows(const float* from, std::int64_t rows, std::int64_t step, float* sums, std::int64_t begin,
              std::int64_t end);

// to[k step + row] = from[row from_step + k], for row < rows and k < columns.
void transpose(const float* from, std::int64_t from_step, std::int64_t rows, std::int64_t columns, float* to,
               std::int64_t step);

// {rows, columns} -> {panels(columns), rows, kPanel}, zero padded.
void pack_rows(const float* from, std::int64_t from_step, std::int64_t rows, std::int64_t columns, float* to);

}  // namespace exphil::host
