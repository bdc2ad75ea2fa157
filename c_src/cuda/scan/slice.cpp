#include "cuda/scan/slice.hpp"

#include <type_traits>

namespace exphil::cuda {
namespace {

template <class T>
T* advance(T* data, std::int64_t bytes) {
  if (data == nullptr) return nullptr;
  using Byte = std::conditional_t<std::is_const_v<T>, const char, char>;
  return reinterpret_cast<T*>(reinterpret_cast<Byte*>(data) + bytes);
}

std::int64_t row_bytes(const core::ScanProblem& p) {  // x of one sequence
  return p.seq * p.dim * static_cast<std::int64_t>(core::dtype_size(p.dtype));
}

std::int64_t projection_row_bytes(const core::ScanProblem& p, const core::ProjectionLayout& layout) {
  if (layout.constant) return 0;
  const std::size_t element = core::dtype_size(p.complex ? core::Dtype::c64 : p.dtype);
  return p.seq * layout.groups * p.state * static_cast<std::int64_t>(element);
}

std::size_t projection_bytes(const core::ScanProblem& p, const core::ProjectionLayout& layout) {
  const std::size_t element = core::dtype_size(p.complex ? core::Dtype::c64 : p.dtype);
  if (layout.constant) return static_cast<std::size_t>(p.dim * p.state) * element;
  return static_cast<std::size_t>(p.batch * projection_row_bytes(p, layout));
}

std::int64_t state_bytes(const core::ScanProblem& p) {  // of one sequence
  return p.dim * p.state * (p.complex ? 8 : 4);
}

}  // namespace

ScanBytes scan_bytes(const core::ScanProblem& p) {
  ScanBytes bytes;
  bytes.x = static_cast<std::size_t>(p.batch * row_bytes(p));
  bytes.z = p.z != nullptr ? bytes.x : 0;
  bytes.a = static_cast<std::size_t>(state_bytes(p) * (p.full_matrix ? p.state : 1));
  bytes.b = projection_bytes(p, p.b_layout);
  bytes.c = projection_bytes(p, p.c_layout);
  bytes.d = p.d != nullptr ? static_cast<std::size_t>(p.dim) * 4 : 0;
  bytes.dt_bias = p.dt_bias != nullptr ? static_cast<std::size_t>(p.dim) * 4 : 0;
  bytes.state = static_cast<std::size_t>(p.batch * state_bytes(p));
  bytes.states = bytes.state * static_cast<std::size_t>(p.seq);
  return bytes;
}

core::ScanProblem slice_batch(const core::ScanProblem& p, std::int64_t begin, std::int64_t count) {
  core::ScanProblem slice = p;
  slice.batch = count;
  slice.x = advance(p.x, begin * row_bytes(p));
  slice.dt = advance(p.dt, begin * row_bytes(p));
  slice.z = advance(p.z, begin * row_bytes(p));
  slice.b = advance(p.b, begin * projection_row_bytes(p, p.b_layout));
  slice.c = advance(p.c, begin * projection_row_bytes(p, p.c_layout));
  slice.initial_state = advance(p.initial_state, begin * state_bytes(p));
  return slice;
}

core::ScanOutputs slice_batch(const core::ScanProblem& p, const core::ScanOutputs& outputs,
                              std::int64_t begin) {
  core::ScanOutputs slice;
  slice.y = advance(outputs.y, begin * row_bytes(p));
  slice.y_reverse = advance(outputs.y_reverse, begin * row_bytes(p));
  slice.final_state = advance(outputs.final_state, begin * state_bytes(p));
  slice.states = advance(outputs.states, begin * state_bytes(p) * p.seq);
  return slice;
}

}  // namespace exphil::cuda
