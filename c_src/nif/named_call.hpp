// Calls whose tensors and results have names (nif/recurrent.cpp, nif/ssd.cpp): reads the tensors, makes the
// results' memory, runs the call and encodes them. Template of an operator (core::NamedSsd,
// core::NamedRecurrent); any thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "core/operands.hpp"
#include "nif/functions.hpp"

namespace exphil::nif {

template <class Operator>
typename Operator::Id operand_named(const Operator& op, core::Flow flow, const std::string& name) {
  const auto id = op.operand_named(flow, name);
  if (!id) {
    core::fail(core::ErrorKind::invalid_argument, name, op.title(),
               flow == core::Flow::in ? " takes no " : " has no result ", name);
  }
  return *id;
}

// A list of the tensors that `results` names, in that order. run(backend, call) computes them. Throws
// invalid_argument for one that is named twice.
template <class Operator, class Run>
Term run_named_call(Call& call, BackendChoice choice, std::int64_t device, const Operator& op,
                    const NamedTerms& tensors, const std::vector<std::string>& results, const Run& run) {
  using Id = typename Operator::Id;
  core::PerOperand<Id, std::optional<core::TensorView>> views;
  for (const auto& [name, term] : tensors) {
    const Id id = operand_named(op, core::Flow::in, name.name);
    views[id] = Decoder<ScanTensor>::decode(call, term, op.name_of(id));
  }
  auto given = op.validate(views);
  core::Backend& backend = open_backend(choice, device, call.device_ranges());
  given.on_device = call.device_ranges();

  std::vector<Id> ids;
  for (const std::string& name : results) {
    ids.push_back(operand_named(op, core::Flow::out, name));
    op.require_result(given.shape, ids.back(), "results");
  }
  std::vector<std::unique_ptr<Result>> memory;
  for (const Id id : ids) {
    if (given.shape.has(id)) {
      core::fail(core::ErrorKind::invalid_argument, "results", "the result ",
                 core::describe(given.shape, id).name, " is listed twice");
    }
    given.shape.add(id);
    memory.push_back(std::make_unique<Result>(call, backend, core::describe(given.shape, id).bytes()));
    given.set(id, memory.back()->data());
  }
  run(backend, given);
  std::vector<Term> terms;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const core::Operand operand = core::describe(given.shape, ids[i]);
    terms.push_back(encode_tensor(call, operand.dtype, operand.axes.shape(), memory[i]->term()));
  }
  return encode_list(call, terms);
}

}  // namespace exphil::nif
