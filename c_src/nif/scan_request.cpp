#include "nif/scan_request.hpp"

#include "core/names.hpp"

namespace exphil::nif {

void take_dt_options(OptionReader& reader, core::DtOptions* options) {
  options->dt_softplus = reader.take<bool>("dt_softplus").value_or(options->dt_softplus);
  if (const auto range = reader.take<std::tuple<double, double>>("dt_range")) {
    options->dt_min = static_cast<float>(std::get<0>(*range));
    options->dt_max = static_cast<float>(std::get<1>(*range));
  }
}

ScanRequest Decoder<ScanRequest>::decode(Call& call, Term term, const char* argument) {
  OptionReader reader(call, term, argument);
  ScanRequest request;
  core::ScanOptions& options = request.options;
  if (const auto rule = reader.take<Atom>("discretization")) {
    options.discretization = core::discretization_named(rule->name, ":discretization");
  }
  take_dt_options(reader, &options);
  if (const auto direction = reader.take<Atom>("direction", ":reverse")) {
    options.direction = core::direction_named(direction->name, ":reverse");
  }
  if (const auto algorithm = reader.take<Atom>("algorithm")) {
    options.algorithm = core::scan_algorithm_named(algorithm->name, ":algorithm");
  }
  request.results.final_state = reader.take<bool>("final_state", "final_state").value_or(false);
  request.results.states = reader.take<bool>("states", "states").value_or(false);
  reader.finish();
  return request;
}

}  // namespace exphil::nif
