// What a call of a fused operator refuses, and the names of its operands.
#include "core/recurrent/call.hpp"

#include "core/error.hpp"
#include "core/limits.hpp"
#include "core/names.hpp"
#include "support/catch.hpp"
#include "support/errors.hpp"
#include "support/recurrent_case.hpp"

namespace exphil::test {
namespace {

using core::Dtype;
using core::Flow;
using core::RecurrentOp;
using core::Shape;
using Id = RecurrentId;

struct Given {
  RecurrentKind kind;
  bool gradient = false;
  core::RecurrentTensors tensors;
  RecurrentCase owner;
  Given(RecurrentOp op, bool of_gradient)
      : kind{op, false}, gradient(of_gradient), owner(kind, {2, 3, 4}, of_gradient) {
    tensors = owner.views();
  }
};

// The message of the error, where it names the argument.
template <class Call>
std::string message_of(const Call& call, const std::string& argument) {
  const CaughtError caught = error_of(call);
  return caught.argument == argument ? caught.message : "names " + caught.argument;
}
std::string refused(const Given& given, const char* argument) {
  return message_of([&] { core::validate_recurrent(given.kind.op, given.kind.activated, given.tensors); },
                    argument);
}

TEST_CASE("a call of a fused operator names the bad argument", "[recurrent]") {
  Given gru(RecurrentOp::gru_scan, false);
  const Given fresh = gru;
  gru.tensors[Id::x0]->shape = Shape{2, 3, 13};
  CHECK(refused(gru, "wx") ==
        "wx must be {batch, seq, 3 hidden} with batch and hidden at least 1; got shape {2, 3, 13}");
  gru = fresh, gru.tensors[Id::x1]->shape = Shape{4, 16};
  CHECK(refused(gru, "r") == "r must be {hidden, 3 hidden} = {4, 12}; got shape {4, 16}");
  gru = fresh, gru.tensors[Id::x1]->dtype = Dtype::f16;
  CHECK(refused(gru, "r") == "r must be f32 like wx; got f16");
  gru = fresh, gru.tensors[Id::h0]->bytes -= 4;
  CHECK(refused(gru, ":h0").find("bytes") != std::string::npos);
  gru = fresh, gru.tensors[Id::x1].reset();
  CHECK(refused(gru, "r") == "gru_scan needs r");
  gru = fresh, gru.tensors[Id::c0] = gru.tensors[Id::h0];
  CHECK(refused(gru, ":c0") == "gru_scan takes no :c0");
  gru = fresh, gru.kind.activated = true;
  CHECK(refused(gru, ":activated").find("not for gru_scan") != std::string::npos);
  gru = fresh, gru.tensors[Id::x0]->dtype = Dtype::f64;
  CHECK(refused(gru, "wx") == "wx must be f32, f16 or bf16; got f64");
  gru = fresh, gru.tensors[Id::x0]->shape = Shape{1, 0, 3 * (core::kMaxRecurrentHidden + 1)};
  gru.tensors[Id::x0]->bytes = 0;
  CHECK(refused(gru, "wx") == "hidden of wx is 16385; the limit is 16384");

  Given min(RecurrentOp::minlstm, true);
  const Given whole = min;
  min.tensors[Id::x2].reset();
  CHECK(refused(min, "candidates") == "minlstm needs candidates");
  min = whole, min.tensors[Id::dh]->shape = Shape{2, 4, 4};
  CHECK(refused(min, "dh") == "dh must be {batch, seq, hidden} = {2, 3, 4}; got shape {2, 4, 4}");
  min = whole, min.tensors[Id::dh].reset();
  CHECK(refused(min, ":d_final_h") == "minlstm takes no :d_final_h");
}

TEST_CASE("the operands of a fused operator by name", "[recurrent]") {
  const auto named = [](RecurrentOp op, bool gradient, Flow flow, const char* name) {
    return core::recurrent_operand_named(op, gradient, flow, name);
  };
  CHECK(named(RecurrentOp::gru_scan, true, Flow::in, "h0") == Id::h0);
  CHECK(named(RecurrentOp::gru_scan, true, Flow::in, "h") == Id::given_h);
  CHECK(named(RecurrentOp::gru_scan, true, Flow::out, "h0") == Id::grad_h0);
  CHECK(named(RecurrentOp::gru_scan, true, Flow::out, "r") == Id::grad_x1);
  CHECK(named(RecurrentOp::gru_scan, true, Flow::out, "rh") == Id::grad_rh);
  CHECK(named(RecurrentOp::gru_scan, false, Flow::out, "final_h") == Id::final_h);
  CHECK(named(RecurrentOp::lstm_scan, false, Flow::out, "final_c") == Id::final_c);
  CHECK(named(RecurrentOp::minlstm, true, Flow::out, "candidates") == Id::grad_x2);
  CHECK(!named(RecurrentOp::gru_scan, false, Flow::out, "final_c"));
  CHECK(!named(RecurrentOp::mingru, true, Flow::out, "rh"));
  CHECK(!named(RecurrentOp::mingru, false, Flow::in, "dh"));
  CHECK(core::recurrent_op_named("liquid", "op") == RecurrentOp::liquid);
  CHECK(message_of([] { core::recurrent_op_named("gru", "op"); }, "op").find(":liquid") != std::string::npos);
}

TEST_CASE("a result that a call cannot have", "[recurrent]") {
  RecurrentCase test({RecurrentOp::gru_scan, false}, {2, 3, 4, Dtype::f32, false}, true);
  const core::RecurrentShape shape = test.call().shape;
  core::require_recurrent_result(shape, Id::grad_x1, "results");
  for (const Id id : {Id::grad_h0, Id::grad_c0, Id::h, Id::final_h, Id::x0}) {
    CHECK(message_of([&] { core::require_recurrent_result(shape, id, "results"); }, "results")
              .find("has no result") != std::string::npos);
  }
}

}  // namespace
}  // namespace exphil::test
