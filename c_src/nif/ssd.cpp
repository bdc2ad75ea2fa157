// The operator of Mamba-2 and its gradient: one NIF, whose tensors and results have names.
#include "core/ssd/call.hpp"

#include "nif/functions.hpp"
#include "nif/named_call.hpp"
#include "nif/scan_request.hpp"

namespace exphil::nif {

SsdRequest Decoder<SsdRequest>::decode(Call& call, Term term, const char* argument) {
  OptionReader reader(call, term, argument);
  SsdRequest request;
  take_dt_options(reader, &request.options);
  request.gradient = reader.take<bool>("gradient").value_or(false);
  request.results = take_results(reader);
  reader.finish();
  return request;
}

Term ssd(Call& call, BackendChoice choice, std::int64_t device, NamedTerms tensors, SsdRequest request) {
  const core::NamedSsd op{request.options, request.gradient};
  return run_named_call(call, choice, device, op, tensors, request.results,
                        [&](core::Backend& backend, const core::SsdCall& given) {
                          op.gradient ? backend.ssd_scan_grad(given) : backend.ssd_scan(given);
                        });
}

}  // namespace exphil::nif
