// What a call of the operator of Mamba-2 refuses, and the names of its operands.
#include "core/ssd/call.hpp"

#include "core/error.hpp"
#include "core/limits.hpp"
#include "support/catch.hpp"
#include "support/errors.hpp"
#include "support/ssd_case.hpp"

namespace exphil::test {
namespace {

using core::Dtype;
using core::Flow;
using core::Shape;
using Id = SsdId;

// The message of the error, where it names the argument.
std::string refused(const core::SsdTensors& tensors, const char* argument, core::DtOptions options = {}) {
  const CaughtError caught = error_of([&] { core::validate_ssd(options, tensors); });
  return caught.argument == argument ? caught.message : "names " + caught.argument;
}

TEST_CASE("a call of the operator of Mamba-2 names the bad argument", "[ssd]") {
  const SsdCase owner({}, true);
  const core::SsdTensors fresh = owner.views();
  CHECK(refused(fresh, "") == "");
  const auto with = [&](Id id, const Shape& shape) {
    core::SsdTensors tensors = fresh;
    tensors[id]->shape = shape;
    return tensors;
  };
  CHECK(refused(with(Id::x, {2, 9, 4}), "x") ==
        "x must be {batch, seq, heads, headdim}; got shape {2, 9, 4}");
  CHECK(refused(with(Id::x, {0, 9, 4, 5}), "x").find("with batch, heads and headdim at least 1") !=
        std::string::npos);
  CHECK(refused(with(Id::x, {1, 0, 1, core::kMaxDim + 1}), "x") ==
        "heads * headdim of x is 16777217; the limit is 16777216");
  CHECK(refused(with(Id::x, {1, 0, core::kMaxDim + 1, 1}), "x") ==
        "heads of x is 16777217; the limit is 16777216");
  CHECK(refused(with(Id::dt, {2, 9, 5}), "dt") ==
        "dt must be {batch, seq, heads} = {2, 9, 4}; got shape {2, 9, 5}");
  CHECK(refused(with(Id::a, {5}), "a") == "a must be {heads} = {4}; got shape {5}");
  CHECK(refused(with(Id::b, {2, 9, 3, 3}), "b") ==
        "b must be {batch, seq, groups, state} with groups dividing heads = 4; got shape {2, 9, 3, 3}");
  CHECK(refused(with(Id::b, {2, 9, 3}), "b") == "b must be {batch, seq, groups, state}; got shape {2, 9, 3}");
  CHECK(refused(with(Id::b, {2, 9, 2, 257}), "b") == "state of b is 257; the limit is 256");
  CHECK(refused(with(Id::b, {2, 9, 2, 0}), "b").find("state at least 1") != std::string::npos);
  CHECK(refused(with(Id::c, {2, 9, 1, 3}), "c") ==
        "c must be {batch, seq, groups, state} = {2, 9, 2, 3}; got shape {2, 9, 1, 3}");
  CHECK(refused(with(Id::d, {4, 5, 1}), ":d") ==
        ":d must be {heads} or {heads, headdim}; got shape {4, 5, 1}");
  CHECK(refused(with(Id::d, {4, 4}), ":d") == ":d must be {heads, headdim} = {4, 5}; got shape {4, 4}");
  CHECK(refused(with(Id::z, {2, 9, 4, 6}), ":z").find("= {2, 9, 4, 5}") != std::string::npos);
  CHECK(refused(with(Id::dt_bias, {2}), ":dt_bias").find("{heads} = {4}") != std::string::npos);
  CHECK(refused(with(Id::initial_state, {2, 4, 3, 5}), ":initial_state") ==
        ":initial_state must be {batch, heads, headdim, state} = {2, 4, 5, 3}; got shape {2, 4, 3, 5}");
  CHECK(refused(with(Id::dy, {2, 8, 4, 5}), "dy").find("= {2, 9, 4, 5}") != std::string::npos);

  core::SsdTensors tensors = fresh;
  tensors[Id::dt]->dtype = Dtype::f16;
  CHECK(refused(tensors, "dt") == "dt must be f32 like x; got f16");
  tensors = fresh, tensors[Id::a]->dtype = Dtype::c64;
  CHECK(refused(tensors, "a") == "a must be f32; got c64");
  tensors = fresh, tensors[Id::x]->dtype = Dtype::f64;
  CHECK(refused(tensors, "x") == "x must be f32, f16 or bf16; got f64");
  tensors = fresh, tensors[Id::z]->bytes -= 4;
  CHECK(refused(tensors, ":z").find("bytes") != std::string::npos);
  tensors = fresh, tensors[Id::c].reset();
  CHECK(refused(tensors, "c") == "the gradient needs c");
  tensors = fresh, tensors[Id::dy].reset();
  CHECK(refused(tensors, ":d_final_state") == "the scan takes no :d_final_state");
  CHECK(refused(fresh, ":dt_range", {false, 2, 1}).find("min at most max") != std::string::npos);
}

TEST_CASE("sizes whose product has more than 63 bits are a limit of the operator of Mamba-2", "[ssd]") {
  const SsdCase owner({}, false);
  core::SsdTensors tensors = owner.views();
  const std::int64_t huge = std::int64_t{1} << 50;
  tensors[Id::x]->shape = {huge, 0, 1 << 12, 1 << 12};
  tensors[Id::b]->shape = {huge, 0, 1, 256};
  const CaughtError caught = error_of([&] { core::validate_ssd({}, tensors); });
  CHECK(caught.kind == core::ErrorKind::limit_exceeded);
  CHECK(caught.argument == "x");
}

TEST_CASE("the operands of the operator of Mamba-2 by name", "[ssd]") {
  CHECK(core::ssd_operand_named(false, Flow::in, "dt_bias") == Id::dt_bias);
  CHECK(core::ssd_operand_named(true, Flow::in, "dy") == Id::dy);
  CHECK(core::ssd_operand_named(true, Flow::out, "dt_bias") == Id::grad_dt_bias);
  CHECK(core::ssd_operand_named(true, Flow::out, "x") == Id::grad_x);
  CHECK(core::ssd_operand_named(false, Flow::out, "final_state") == Id::final_state);
  CHECK(!core::ssd_operand_named(false, Flow::in, "dy"));
  CHECK(!core::ssd_operand_named(false, Flow::out, "x"));
  CHECK(!core::ssd_operand_named(true, Flow::out, "y"));
}

TEST_CASE("a result that a call of the operator of Mamba-2 cannot have", "[ssd]") {
  SsdSpec spec;
  spec.skips = 0, spec.states = false;
  const core::SsdShape shape = SsdCase(spec, true).call().shape;
  core::require_ssd_result(shape, Id::grad_z, "results");
  for (const Id id : {Id::grad_d, Id::grad_initial_state, Id::y, Id::final_state, Id::x}) {
    const CaughtError caught = error_of([&] { core::require_ssd_result(shape, id, "results"); });
    CHECK(caught.argument == "results");
    CHECK(caught.says("has no result"));
  }
}

}  // namespace
}  // namespace exphil::test
