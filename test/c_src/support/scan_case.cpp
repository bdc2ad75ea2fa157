#include "support/scan_case.hpp"

#include <cstring>

#include "core/error.hpp"
#include "core/half.hpp"
#include "core/scan/reference.hpp"
#include "support/numbers.hpp"

namespace exphil::test {

using core::Dtype;
using core::Shape;
using core::TensorView;

std::string ScanSpec::to_string() const {
  return core::message("batch ", batch, " seq ", seq, " dim ", dim, " state ", state, " ",
                       core::dtype_name(dtype), complex ? " complex" : "", full_matrix ? " full" : "",
                       " b_groups ", b_groups, " c_groups ", c_groups, d ? " d" : "", z ? " z" : "",
                       dt_bias ? " dt_bias" : "", initial_state ? " initial_state" : "",
                       structured_a ? " structured_a" : "", ladder_a ? " ladder_a" : "", " discretization ",
                       static_cast<int>(options.discretization), " direction ",
                       static_cast<int>(options.direction), options.dt_softplus ? " softplus" : "");
}

ScanCase::ScanCase(const ScanSpec& spec) : spec_(spec) {
  const ScanSpec& s = spec_;
  const Shape stream{s.batch, s.seq, s.dim};
  const Dtype projection = s.complex ? Dtype::c64 : s.dtype;
  const auto projection_shape = [&](std::int64_t groups) {
    if (groups == 0) return Shape{s.dim, s.state};
    return groups == 1 ? Shape{s.batch, s.seq, s.state} : Shape{s.batch, s.seq, groups, s.state};
  };
  inputs_.x = add(s.dtype, stream, -1.0f, 1.0f);
  inputs_.dt = s.options.dt_softplus ? add(s.dtype, stream, -3.0f, 1.0f) : add(s.dtype, stream, 0.001f, 0.3f);
  inputs_.a = make_a();
  inputs_.b = add(projection, projection_shape(s.b_groups), -1.0f, 1.0f);
  inputs_.c = add(projection, projection_shape(s.c_groups), -1.0f, 1.0f);
  if (s.d) inputs_.d = add(Dtype::f32, Shape{s.dim}, -1.0f, 1.0f);
  if (s.z) inputs_.z = add(s.dtype, stream, -2.0f, 2.0f);
  if (s.dt_bias) inputs_.dt_bias = add(Dtype::f32, Shape{s.dim}, 0.0f, 0.2f);
  if (s.initial_state) {
    inputs_.initial_state =
        add(s.complex ? Dtype::c64 : Dtype::f32, Shape{s.batch, s.dim, s.state}, -1.0f, 1.0f);
  }
}

TensorView ScanCase::make_a() {
  const ScanSpec& s = spec_;
  Random random(s.seed + 1000003);
  std::vector<float> a;
  for (std::int64_t d = 0; d < s.dim; ++d) {
    const float first = s.ladder_a ? -1.0f : random.uniform(-1.5f, -0.5f);
    for (std::int64_t n = 0; n < s.state * (s.full_matrix ? s.state : 1); ++n) {
      const bool diagonal = s.full_matrix && n / s.state == n % s.state;
      if (s.structured_a || s.ladder_a) {
        a.push_back(first * static_cast<float>(n + 1));
      } else if (s.full_matrix) {
        a.push_back(diagonal ? first - 1.0f : random.uniform(-0.3f, 0.3f));
      } else {
        a.push_back(random.uniform(-4.0f, -0.01f));
      }
      if (s.complex) a.push_back(random.uniform(-3.0f, 3.0f));
    }
  }
  const Shape shape = s.full_matrix ? Shape{s.dim, s.state, s.state} : Shape{s.dim, s.state};
  return add(s.complex ? Dtype::c64 : Dtype::f32, shape, a);
}

TensorView ScanCase::add(Dtype dtype, const Shape& shape, float low, float high) {
  Random random(spec_.seed * 7919 + ++tensors_made_);
  const std::size_t floats = static_cast<std::size_t>(shape.elements("test")) * (dtype == Dtype::c64 ? 2 : 1);
  return add(dtype, shape, random.vector(floats, low, high));
}

TensorView ScanCase::add(Dtype dtype, const Shape& shape, const std::vector<float>& values) {
  const bool half = dtype == Dtype::f16 || dtype == Dtype::bf16;
  std::vector<std::uint8_t> bytes(values.size() * (half ? 2 : 4));
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (half) {
      const std::uint16_t bits =
          dtype == Dtype::f16 ? core::f32_to_f16(values[i]) : core::f32_to_bf16(values[i]);
      std::memcpy(bytes.data() + 2 * i, &bits, 2);
    } else {
      std::memcpy(bytes.data() + 4 * i, &values[i], 4);
    }
  }
  storage_.push_back(std::move(bytes));
  return TensorView{dtype, shape, storage_.back().data(), storage_.back().size()};
}

ScanExpected expect(const core::ScanCall& call, bool with_states) {
  const std::size_t y = static_cast<std::size_t>(call.shape.y_elements());
  const std::size_t state = static_cast<std::size_t>(call.shape.state_floats());
  ScanExpected expected;
  expected.y.resize(y);
  expected.final_state.resize(state);
  core::ScanReferenceOutputs outputs;
  outputs.y = expected.y.data();
  if (call.shape.options.direction == core::Direction::both) {
    expected.y_reverse.resize(y);
    outputs.y_reverse = expected.y_reverse.data();
  }
  outputs.final_state = expected.final_state.data();
  if (with_states) {
    expected.states.resize(state * static_cast<std::size_t>(call.shape.seq));
    outputs.states = expected.states.data();
  }
  core::scan_reference(call, outputs);
  return expected;
}

core::ScanCall slice_of(const core::ScanCall& call, std::int64_t begin, std::int64_t count) {
  core::ScanCall slice = call;
  const auto strides = core::sequence_strides(core::describe_operands(call.shape));
  slice.shape.batch = count;
  slice.operands = core::slice_batch(strides, call.operands, begin);
  return slice;
}

std::vector<float> widen_result(const void* data, Dtype dtype, std::size_t count) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    if (dtype == Dtype::f16 || dtype == Dtype::bf16) {
      const std::uint16_t bits = static_cast<const std::uint16_t*>(data)[i];
      values[i] = dtype == Dtype::f16 ? core::f16_to_f32(bits) : core::bf16_to_f32(bits);
    } else {
      values[i] = static_cast<const float*>(data)[i];
    }
  }
  return values;
}

}  // namespace exphil::test
