// Calls whose results a request names (nif/recurrent.cpp, nif/ssd.cpp): makes their memory, runs the call and
// encodes them. Template of one call; any thread.
#pragma once

#include <memory>
#include <vector>

#include "core/error.hpp"
#include "core/operands.hpp"
#include "nif/codec.hpp"

namespace exphil::nif {

// A list of the tensors of `ids`, in that order, each of which run() has computed. Throws invalid_argument
// for one that is named twice.
template <class Id, class OperatorCall, class Run>
Term run_for_results(Call& call, core::Backend& backend, const std::vector<Id>& ids, OperatorCall* given,
                     const Run& run) {
  std::vector<std::unique_ptr<Result>> memory;
  for (const Id id : ids) {
    if (given->shape.has(id)) {
      core::fail(core::ErrorKind::invalid_argument, "results", "the result ",
                 core::describe(given->shape, id).name, " is listed twice");
    }
    given->shape.add(id);
    memory.push_back(std::make_unique<Result>(call, backend, core::describe(given->shape, id).bytes()));
    given->set(id, memory.back()->data());
  }
  run();
  std::vector<Term> terms;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const core::Operand operand = core::describe(given->shape, ids[i]);
    terms.push_back(encode_tensor(call, operand.dtype, operand.axes.shape(), memory[i]->term()));
  }
  return encode_list(call, terms);
}

}  // namespace exphil::nif
