// The operator of Mamba-2 and its gradient: one NIF, whose tensors and results have names.
#include <string>

#include "core/ssd/call.hpp"
#include "nif/functions.hpp"
#include "nif/named_results.hpp"
#include "nif/scan_request.hpp"

namespace exphil::nif {

using core::Flow;
using core::SsdOperand;

SsdRequest Decoder<SsdRequest>::decode(Call& call, Term term, const char* argument) {
  OptionReader reader(call, term, argument);
  SsdRequest request;
  take_dt_options(reader, &request.options);
  request.gradient = reader.take<bool>("gradient").value_or(false);
  request.results = take_results(reader);
  reader.finish();
  return request;
}

namespace {

SsdOperand operand_named(bool gradient, Flow flow, const std::string& name) {
  const auto id = core::ssd_operand_named(gradient, flow, name);
  if (!id) {
    core::fail(core::ErrorKind::invalid_argument, name, gradient ? "the gradient" : "the scan",
               flow == Flow::in ? " takes no " : " has no result ", name);
  }
  return *id;
}

}  // namespace

Term ssd(Call& call, BackendChoice choice, std::int64_t device, NamedTerms tensors, SsdRequest request) {
  core::SsdTensors views;
  for (const auto& [name, term] : tensors) {
    const SsdOperand id = operand_named(request.gradient, Flow::in, name.name);
    views[id] = Decoder<ScanTensor>::decode(call, term, core::ssd_operand_name(id));
  }
  core::SsdCall given = core::validate_ssd(request.options, views);
  core::Backend& backend = open_backend(choice, device, call.device_ranges());
  given.on_device = call.device_ranges();

  std::vector<SsdOperand> results;
  for (const std::string& name : request.results) {
    results.push_back(operand_named(request.gradient, Flow::out, name));
    core::require_ssd_result(given.shape, results.back(), "results");
  }
  return run_for_results(call, backend, results, &given,
                         [&] { request.gradient ? backend.ssd_scan_grad(given) : backend.ssd_scan(given); });
}

}  // namespace exphil::nif
