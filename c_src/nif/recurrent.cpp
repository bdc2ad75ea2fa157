// The fused recurrent operators and their gradients: one NIF, whose tensors and results have names.
#include <string>

#include "core/names.hpp"
#include "core/recurrent/call.hpp"
#include "nif/functions.hpp"
#include "nif/named_results.hpp"
#include "nif/option_reader.hpp"

namespace exphil::nif {

using core::Flow;
using core::RecurrentOp;
using core::RecurrentOperand;

RecurrentRequest Decoder<RecurrentRequest>::decode(Call& call, Term term, const char* argument) {
  OptionReader reader(call, term, argument);
  RecurrentRequest request;
  request.activated = reader.take<bool>("activated").value_or(false);
  request.gradient = reader.take<bool>("gradient").value_or(false);
  request.results = take_results(reader);
  reader.finish();
  return request;
}

namespace {

RecurrentOperand operand_named(RecurrentOp op, bool gradient, Flow flow, const std::string& name) {
  const auto id = core::recurrent_operand_named(op, gradient, flow, name);
  if (!id) {
    core::fail(core::ErrorKind::invalid_argument, name, core::recurrent_row(op).name,
               gradient ? "'s gradient" : "", flow == Flow::in ? " takes no " : " has no result ", name);
  }
  return *id;
}

}  // namespace

Term recurrent(Call& call, BackendChoice choice, std::int64_t device, Atom op_name, NamedTerms tensors,
               RecurrentRequest request) {
  const RecurrentOp op = core::recurrent_op_named(op_name.name, "op");
  core::RecurrentTensors views;
  for (const auto& [name, term] : tensors) {
    const RecurrentOperand id = operand_named(op, request.gradient, Flow::in, name.name);
    views[id] = Decoder<ScanTensor>::decode(call, term, core::recurrent_operand_name(op, id));
  }
  core::RecurrentCall given = core::validate_recurrent(op, request.activated, views);
  core::Backend& backend = open_backend(choice, device, call.device_ranges());
  given.on_device = call.device_ranges();

  std::vector<RecurrentOperand> results;
  for (const std::string& name : request.results) {
    results.push_back(operand_named(op, request.gradient, Flow::out, name));
    core::require_recurrent_result(given.shape, results.back(), "results");
  }
  return run_for_results(call, backend, results, &given, [&] {
    request.gradient ? backend.recurrent_scan_grad(given) : backend.recurrent_scan(given);
  });
}

}  // namespace exphil::nif
