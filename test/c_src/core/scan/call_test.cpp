#include "core/scan/call.hpp"

#include <cmath>
#include <functional>

#include "support/catch.hpp"
#include "support/errors.hpp"
#include "support/scan_case.hpp"

namespace exphil::core {

namespace {

using formulas::Discretization;
using test::CaughtError;
using test::ScanCase;
using test::ScanSpec;

TensorView empty_view(Dtype dtype, const Shape& shape) {
  return {dtype, shape, nullptr, static_cast<std::size_t>(shape.elements("")) * dtype_size(dtype)};
}

// The error of a valid problem after one change.
CaughtError error_after(const std::function<void(ScanInputs*, ScanOptions*)>& change, ScanSpec spec = {}) {
  spec.d = spec.z = spec.dt_bias = spec.initial_state = true;
  const ScanCase sound(spec);
  ScanInputs inputs = sound.inputs();
  ScanOptions options = spec.options;
  change(&inputs, &options);
  return test::error_of([&] { validate_scan(inputs, options); });
}

void check(const CaughtError& error, ErrorKind kind, const std::string& argument, const std::string& part) {
  INFO("says: " << error.message);
  CHECK(error.thrown);
  CHECK(error.kind == kind);
  CHECK(error.argument == argument);
  CHECK(error.says(part));
}

constexpr ErrorKind kInvalid = ErrorKind::invalid_argument;

}  // namespace

TEST_CASE("valid problems of every layout are accepted", "[scan][scan_call]") {
  ScanSpec spec;
  spec.dim = 6;
  spec.b_groups = GENERATE(0, 1, 3);
  spec.c_groups = GENERATE(0, 1, 2, 6);
  spec.complex = GENERATE(false, true);
  spec.dtype = spec.complex ? Dtype::f32 : GENERATE(Dtype::f32, Dtype::f16, Dtype::bf16);
  spec.d = spec.z = spec.dt_bias = spec.initial_state = true;
  const ScanCase scan(spec);
  const ScanCall call = scan.call();
  const ScanShape& shape = call.shape;
  CHECK(shape.batch == spec.batch);
  CHECK(shape.seq == spec.seq);
  CHECK(shape.dim == spec.dim);
  CHECK(shape.state == spec.state);
  CHECK(shape.complex == spec.complex);
  CHECK(shape.dtype == spec.dtype);
  CHECK(shape.b_layout.constant == (spec.b_groups == 0));
  CHECK(shape.c_layout.constant == (spec.c_groups == 0));
  CHECK(shape.b_layout.groups == std::max<std::int64_t>(1, spec.b_groups));
  CHECK(call.operands[ScanOperand::z] == scan.inputs().z->data);
  CHECK(call.operands[ScanOperand::initial_state] == scan.inputs().initial_state->data);
  CHECK(shape.state_floats() == 2 * 6 * 3 * (spec.complex ? 2 : 1));
}

TEST_CASE("an empty sequence is legal; an empty batch, dim or state is not", "[scan][scan_call]") {
  ScanSpec spec;
  spec.seq = 0;
  CHECK(ScanCase(spec).call().shape.y_elements() == 0);
  check(error_after([](ScanInputs* in, ScanOptions*) {
          in->x = empty_view(Dtype::f32, {0, 17, 5});
        }),
        kInvalid, "x", "batch at least 1");
  check(error_after([](ScanInputs* in, ScanOptions*) {
          in->x = empty_view(Dtype::f32, {2, 17, 0});
        }),
        kInvalid, "x", "dim at least 1");
  check(error_after([](ScanInputs* in, ScanOptions*) {
          in->a = empty_view(Dtype::f32, {5, 0});
        }),
        kInvalid, "a", "state at least 1");
}

TEST_CASE("wrong ranks and sizes name the argument, the expected and the given shape", "[scan][scan_call]") {
  const auto reshape = [](std::optional<TensorView> ScanInputs::*member, const Shape& shape) {
    return error_after(
        [=](ScanInputs* in, ScanOptions*) { (in->*member) = empty_view(((*in).*member)->dtype, shape); });
  };
  const auto with = [](TensorView ScanInputs::*member, const Shape& shape) {
    return error_after(
        [=](ScanInputs* in, ScanOptions*) { in->*member = empty_view((in->*member).dtype, shape); });
  };
  check(with(&ScanInputs::x, {2, 17}), kInvalid, "x", "{batch, seq, dim}; got shape {2, 17}");
  check(with(&ScanInputs::dt, {2, 17, 4}), kInvalid, "dt", "{2, 17, 5}; got shape {2, 17, 4}");
  check(with(&ScanInputs::dt, {2, 17}), kInvalid, "dt", "got shape {2, 17}");
  check(with(&ScanInputs::a, {4, 3}), kInvalid, "a", "dim = 5; got shape {4, 3}");
  check(with(&ScanInputs::a, {5}), kInvalid, "a", "got shape {5}");
  check(with(&ScanInputs::a, {5, 3, 4}), kInvalid, "a", "got shape {5, 3, 4}");
  check(with(&ScanInputs::b, {2, 17, 4}), kInvalid, "b", "{2, 17, 3}; got shape {2, 17, 4}");
  check(with(&ScanInputs::b, {5, 4}), kInvalid, "b", "{dim, state} = {5, 3}");
  check(with(&ScanInputs::c, {2, 16, 3}), kInvalid, "c", "got shape {2, 16, 3}");
  check(with(&ScanInputs::c, {2, 17, 2, 3}), kInvalid, "c", "groups dividing dim = 5");
  check(with(&ScanInputs::c, {2, 17, 0, 3}), kInvalid, "c", "groups dividing dim = 5");
  check(with(&ScanInputs::c, {3}), kInvalid, "c", "got shape {3}");
  check(reshape(&ScanInputs::d, {4}), kInvalid, ":d", "{dim} = {5}; got shape {4}");
  check(reshape(&ScanInputs::dt_bias, {5, 1}), kInvalid, ":dt_bias", "{dim} = {5}");
  check(reshape(&ScanInputs::z, {2, 17, 1}), kInvalid, ":z", "{2, 17, 5}");
  check(reshape(&ScanInputs::initial_state, {2, 3, 5}), kInvalid, ":initial_state", "{2, 5, 3}");
}

TEST_CASE("bytes that disagree with the shape are refused for every tensor", "[scan][scan_call]") {
  for (const int delta : {-4, 4}) {
    for (TensorView ScanInputs::*member :
         {&ScanInputs::x, &ScanInputs::dt, &ScanInputs::a, &ScanInputs::b, &ScanInputs::c}) {
      const CaughtError error =
          error_after([&](ScanInputs* in, ScanOptions*) { (in->*member).bytes += delta; });
      CHECK(error.kind == kInvalid);
      CHECK(error.says("bytes, got"));
    }
    for (std::optional<TensorView> ScanInputs::*member :
         {&ScanInputs::d, &ScanInputs::z, &ScanInputs::dt_bias, &ScanInputs::initial_state}) {
      const CaughtError error =
          error_after([&](ScanInputs* in, ScanOptions*) { (in->*member)->bytes += delta; });
      CHECK(error.kind == kInvalid);
      CHECK(error.says("bytes, got"));
    }
  }
}

TEST_CASE("mixed dtypes name the argument", "[scan][scan_call]") {
  const auto cast = [](TensorView ScanInputs::*member, Dtype dtype, ScanSpec spec = {}) {
    return error_after(
        [=](ScanInputs* in, ScanOptions*) { in->*member = empty_view(dtype, (in->*member).shape); }, spec);
  };
  ScanSpec complex;
  complex.complex = true;
  check(cast(&ScanInputs::x, Dtype::f64), ErrorKind::unsupported, "x", "got f64");
  check(cast(&ScanInputs::x, Dtype::s32), ErrorKind::unsupported, "x", "got s32");
  check(cast(&ScanInputs::x, Dtype::c64), ErrorKind::unsupported, "x", "got c64");
  check(cast(&ScanInputs::dt, Dtype::f16), kInvalid, "dt", "dt must be f32 like x; got f16");
  check(cast(&ScanInputs::b, Dtype::bf16), kInvalid, "b", "b must be f32 like x; got bf16");
  check(cast(&ScanInputs::c, Dtype::c64), kInvalid, "c", "c must be f32 like x; got c64");
  check(cast(&ScanInputs::a, Dtype::f16), kInvalid, "a", "a must be f32");
  check(cast(&ScanInputs::a, Dtype::c64), kInvalid, "b", "b must be c64 like a; got f32");
  check(cast(&ScanInputs::x, Dtype::f16, complex), kInvalid, "x", "x must be f32 where a is c64; got f16");
  check(cast(&ScanInputs::dt, Dtype::f16, complex), kInvalid, "dt", "where a is c64");
  check(cast(&ScanInputs::b, Dtype::f32, complex), kInvalid, "b", "b must be c64 like a");
  const auto option = [](std::optional<TensorView> ScanInputs::*member, Dtype dtype) {
    return error_after(
        [=](ScanInputs* in, ScanOptions*) { (in->*member) = empty_view(dtype, (in->*member)->shape); });
  };
  check(option(&ScanInputs::z, Dtype::bf16), kInvalid, ":z", ":z must be f32 like x; got bf16");
  check(option(&ScanInputs::d, Dtype::f16), kInvalid, ":d", ":d must be f32; got f16");
  check(option(&ScanInputs::initial_state, Dtype::c64), kInvalid, ":initial_state", "must be f32; got c64");
}

TEST_CASE("a scan beyond a limit names it", "[scan][scan_call]") {
  ScanSpec spec;
  spec.dim = spec.batch = spec.seq = 1;
  spec.state = kMaxState;
  CHECK_NOTHROW(ScanCase(spec).call());
  const auto error = error_after([](ScanInputs* in, ScanOptions*) {
    in->a = empty_view(Dtype::f32, {5, 257});
  });
  check(error, ErrorKind::limit_exceeded, "a", "state of a is 257; the limit is 256");
  check(error_after([](ScanInputs* in, ScanOptions*) {
          in->x = TensorView{Dtype::f32, {1, 1, kMaxDim + 1}, nullptr, 0};
        }),
        ErrorKind::limit_exceeded, "x", "dim of x is 16777217; the limit is 16777216");
  check(error_after([](ScanInputs* in, ScanOptions*) {
          in->x = TensorView{Dtype::f32, {std::int64_t{1} << 40, std::int64_t{1} << 40, 4}, nullptr, 0};
        }),
        ErrorKind::limit_exceeded, "x", "2^63");
}

TEST_CASE("a full matrix needs bilinear, f32 and a state of at most 32", "[scan][scan_call]") {
  ScanSpec spec;
  spec.full_matrix = true;
  spec.options.discretization = Discretization::bilinear;
  spec.state = 32;
  CHECK(ScanCase(spec).call().shape.full_matrix);
  check(error_after([](ScanInputs*, ScanOptions* o) { o->discretization = Discretization::zoh; }, spec),
        ErrorKind::unsupported, "a", ":bilinear only");
  check(error_after(
            [](ScanInputs* in, ScanOptions*) {
              in->a = empty_view(Dtype::c64, {5, 32, 32});
            },
            spec),
        ErrorKind::unsupported, "a", "must be f32; got c64");
  check(error_after(
            [](ScanInputs* in, ScanOptions*) {
              in->a = empty_view(Dtype::f32, {5, 33, 33});
            },
            spec),
        ErrorKind::limit_exceeded, "a", "state of a is 33; the limit is 32");
}

TEST_CASE("options are checked", "[scan][scan_call]") {
  check(error_after([](ScanInputs*, ScanOptions* o) {
          o->dt_min = 0.5f;
          o->dt_max = 0.1f;
        }),
        kInvalid, ":dt_range", "got {0.5, 0.1}");
  check(error_after([](ScanInputs*, ScanOptions* o) { o->dt_min = std::nanf(""); }), kInvalid, ":dt_range",
        "min at most max");
  check(error_after([](ScanInputs*, ScanOptions* o) { o->direction = Direction::both; }),
        ErrorKind::unsupported, ":initial_state", "both directions");
}

}  // namespace exphil::core
