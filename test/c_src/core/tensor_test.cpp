#include "core/tensor.hpp"

#include <limits>

#include "support/catch.hpp"
#include "support/errors.hpp"

namespace exphil::core {

using test::error_of;

TEST_CASE("dtypes have sizes and names that parse back", "[tensor]") {
  for (const Dtype dtype :
       {Dtype::f32, Dtype::f16, Dtype::bf16, Dtype::c64, Dtype::f64, Dtype::s32, Dtype::s64}) {
    Dtype parsed = Dtype::s64;
    CHECK(parse_dtype(dtype_name(dtype), &parsed));
    CHECK(parsed == dtype);
    CHECK(dtype_size(dtype) >= 2);
  }
  Dtype untouched = Dtype::c64;
  CHECK_FALSE(parse_dtype("u4", &untouched));
  CHECK(untouched == Dtype::c64);
  CHECK(dtype_size(Dtype::bf16) == 2);
  CHECK(dtype_size(Dtype::c64) == 8);
}

TEST_CASE("sizes are multiplied in 63 bits or refused", "[tensor]") {
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
  CHECK(checked_multiply(most, 1, "x") == most);
  CHECK(checked_multiply(std::int64_t{1} << 31, std::int64_t{1} << 31, "x") == std::int64_t{1} << 62);
  const auto overflow =
      error_of([&] { checked_multiply(std::int64_t{1} << 32, std::int64_t{1} << 31, "x"); });
  CHECK(overflow.kind == ErrorKind::limit_exceeded);
  CHECK(overflow.argument == "x");
  CHECK(error_of([&] { checked_multiply(-1, 3, "x"); }).kind == ErrorKind::invalid_argument);
  CHECK(error_of([&] { Shape({most, 2}).elements("b"); }).argument == "b");
}

TEST_CASE("shapes compare, print and are bounded in rank", "[tensor]") {
  CHECK(Shape({2, 60, 512}).to_string() == "{2, 60, 512}");
  CHECK(Shape().elements("x") == 1);
  CHECK(Shape({3, 0, 5}).elements("x") == 0);
  CHECK(Shape({1, 2}) != Shape({1, 2, 1}));
  CHECK(Shape({1, 2}) == Shape({1, 2}));
  Shape shape{1, 2, 3, 4, 5, 6, 7, 8};
  CHECK(error_of([&] { shape.push_back(9); }).kind == ErrorKind::limit_exceeded);
}

TEST_CASE("a view's bytes must be what its shape needs", "[tensor]") {
  TensorView view{Dtype::f16, {2, 3}, nullptr, 12};
  CHECK_NOTHROW(check_bytes(view, "x"));
  view.bytes = 11;
  const auto error = error_of([&] { check_bytes(view, "x"); });
  CHECK(error.kind == ErrorKind::invalid_argument);
  CHECK(error.message == "x of type f16 and shape {2, 3} needs 12 bytes, got 11");
  view.bytes = 13;
  CHECK(error_of([&] { check_bytes(view, "x"); }).thrown);
  view.shape = {std::numeric_limits<std::int64_t>::max() / 2, 2};
  CHECK(error_of([&] { check_bytes(view, "x"); }).kind == ErrorKind::limit_exceeded);
}

}  // namespace exphil::core
