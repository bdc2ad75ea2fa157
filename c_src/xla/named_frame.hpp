// Reads the tensors of calls whose attributes name them: operands those behind the first inputs, results the
// results. Callers: recurrent.cpp and ssd.cpp. Every reader throws core::Error (invalid_argument) that names
// the argument or attribute. Templates of an operator's operand table; any thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "core/operands.hpp"
#include "xla/ffi.hpp"

namespace exphil::xla {

// call: what has the names, for errors.
[[noreturn]] inline void unknown_name(const char* call, const char* attribute, const std::string& name) {
  core::fail(core::ErrorKind::invalid_argument, attribute, attribute, " must list what ", call,
             " has, each at most once; got ", name);
}

inline void require_count(const char* attribute, const char* what, std::int64_t named, std::int64_t given) {
  if (named == given) return;
  core::fail(core::ErrorKind::invalid_argument, attribute, "the call has ", given, " ", what,
             ", and the attribute ", attribute, " names ", named);
}

// The inputs, then those that `operands` lists. shown(id): an input's name. named(name): the operand, or
// empty.
template <class Id, class Shown, class Named>
core::PerOperand<Id, std::optional<core::TensorView>> read_named_tensors(const Frame& frame, const char* call,
                                                                         const std::vector<Id>& inputs,
                                                                         const Shown& shown,
                                                                         const Named& named) {
  core::PerOperand<Id, std::optional<core::TensorView>> tensors;
  std::int64_t index = 0;
  for (const Id id : inputs) tensors[id] = frame.argument(index++, shown(id));
  for (const std::string& name : frame.words("operands")) {
    const std::optional<Id> id = named(name);
    if (!id || tensors[*id]) unknown_name(call, "operands", name);
    tensors[*id] = frame.argument(index++, name);
  }
  require_count("operands", "arguments", index, frame.arguments());
  return tensors;
}

// Sets the results of a validated call: those in `first`, then those that `results` lists. require(shape, id,
// argument): throws unless the call can have it.
template <class Id, class Named, class Require, class OperatorCall>
void read_named_results(const Frame& frame, const char* call_name, const std::vector<Id>& first,
                        const Named& named, const Require& require, OperatorCall* call) {
  std::int64_t index = 0;
  const auto read = [&](Id id) {
    require(call->shape, id, "results");
    const core::Operand operand = core::describe(call->shape, id);
    const core::TensorView view = frame.result(index++, operand.name);
    require_result(view, operand.name, operand.dtype, operand.axes.shape());
    call->set(id, const_cast<void*>(view.data));
  };
  for (const Id id : first) read(id);
  for (const std::string& name : frame.words("results")) {
    const std::optional<Id> id = named(name);
    if (!id || call->shape.has(*id)) unknown_name(call_name, "results", name);
    read(*id);
  }
  require_count("results", "results", index, frame.results());
}

}  // namespace exphil::xla
