// The fused recurrent operators and their gradients: one NIF, whose tensors and results have names.
#include "core/names.hpp"
#include "core/recurrent/call.hpp"
#include "nif/functions.hpp"
#include "nif/named_call.hpp"
#include "nif/option_reader.hpp"

namespace exphil::nif {

RecurrentRequest Decoder<RecurrentRequest>::decode(Call& call, Term term, const char* argument) {
  OptionReader reader(call, term, argument);
  RecurrentRequest request;
  request.activated = reader.take<bool>("activated").value_or(false);
  request.gradient = reader.take<bool>("gradient").value_or(false);
  request.results = take_results(reader);
  reader.finish();
  return request;
}

Term recurrent(Call& call, BackendChoice choice, std::int64_t device, Atom op_name, NamedTerms tensors,
               RecurrentRequest request) {
  const core::NamedRecurrent op{core::recurrent_op_named(op_name.name, "op"), request.activated,
                                request.gradient};
  return run_named_call(call, choice, device, op, tensors, request.results,
                        [&](core::Backend& backend, const core::RecurrentCall& given) {
                          op.gradient ? backend.recurrent_scan_grad(given) : backend.recurrent_scan(given);
                        });
}

}  // namespace exphil::nif
