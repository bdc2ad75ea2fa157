// The rows of a vector as the gradient has them on the device: in the pieces that products write. Used by
// cuda/policy/gradient_memory.hpp and the phases of gradient_pass.hpp. Plain values; any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "core/optional_array.hpp"
#include "core/policy/network.hpp"
#include "cuda/policy/gradient_kernels.hpp"

namespace exphil::cuda {

using core::advanced;

// The rows {rows, size} of a vector in its pieces (pieces_of, cuda/policy/gradient_order.hpp), each dense.
// None where no phase of the block writes it.
using VectorRows = std::vector<Matrix>;
// The rows of a span, piece by piece.
std::vector<Matrix> rows_of(const VectorRows& vector, const core::Span& span);
// The same where they are one dense matrix, as kernels need them that are neither of products nor of
// convolutions. Throws unsupported where they are not.
Matrix dense_rows_of(const VectorRows& vector, const core::Span& span);
void require_dense(bool dense);  // throws that error

// Columns from `first` on of the rows of two spans of one size, within a piece of each.
struct ColumnRun {
  Matrix from, to;
  std::int64_t first = 0;
};
std::vector<ColumnRun> common_columns(const std::vector<Matrix>& from, const std::vector<Matrix>& to);

}  // namespace exphil::cuda
