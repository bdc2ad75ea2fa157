#include "cuda/policy/gradient_columns.hpp"

#include <algorithm>

#include "core/error.hpp"

namespace exphil::cuda {

using core::Span;

std::vector<Matrix> rows_of(const VectorRows& vector, const Span& span) {
  std::vector<Matrix> found;
  std::int64_t at = 0;
  for (const Matrix& piece : vector) {
    const std::int64_t first = std::max(at, span.first);
    const std::int64_t end = std::min(at + piece.columns, span.first + span.size);
    if (first < end) found.push_back(piece.part(first - at, end - first));
    at += piece.columns;
  }
  return found;
}

void require_dense(bool dense) {
  if (!dense) {
    core::fail(core::ErrorKind::unsupported, "",
               "the gradient on a GPU needs that a phase other than a product or a convolution reads and "
               "writes whole "
               "vectors, or parts that no phase reads in parts");
  }
}

Matrix dense_rows_of(const VectorRows& vector, const Span& span) {
  const std::vector<Matrix> all = rows_of(vector, span);
  require_dense(all.size() == 1 && all[0].dense());
  return all[0];
}

std::vector<ColumnRun> common_columns(const std::vector<Matrix>& from, const std::vector<Matrix>& to) {
  std::vector<ColumnRun> runs;
  std::size_t f = 0, t = 0;
  std::int64_t in_from = 0, in_to = 0, first = 0;
  while (f < from.size() && t < to.size()) {
    const std::int64_t columns = std::min(from[f].columns - in_from, to[t].columns - in_to);
    runs.push_back({from[f].part(in_from, columns), to[t].part(in_to, columns), first});
    first += columns, in_from += columns, in_to += columns;
    if (in_from == from[f].columns) ++f, in_from = 0;
    if (in_to == to[t].columns) ++t, in_to = 0;
  }
  return runs;
}

}  // namespace exphil::cuda
