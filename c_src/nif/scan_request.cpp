#include "nif/scan_request.hpp"

#include "core/names.hpp"

namespace exphil::nif {

ScanRequest Decoder<ScanRequest>::decode(Call& call, Term term, const char* argument) {
  ScanRequest request;
  core::ScanOptions& options = request.options;
  for (const auto& [key, value] : Decoder<Map>::decode(call, term, argument)) {
    if (key.name == "discretization") {
      options.discretization = core::discretization_named(
          Decoder<Atom>::decode(call, value, ":discretization").name, ":discretization");
    } else if (key.name == "dt_softplus") {
      options.dt_softplus = Decoder<bool>::decode(call, value, ":dt_softplus");
    } else if (key.name == "dt_range") {
      const auto range = Decoder<std::optional<std::tuple<double, double>>>::decode(call, value, ":dt_range");
      if (!range) continue;
      options.dt_min = static_cast<float>(std::get<0>(*range));
      options.dt_max = static_cast<float>(std::get<1>(*range));
    } else if (key.name == "direction") {
      options.direction =
          core::direction_named(Decoder<Atom>::decode(call, value, ":reverse").name, ":reverse");
    } else if (key.name == "algorithm") {
      options.algorithm =
          core::scan_algorithm_named(Decoder<Atom>::decode(call, value, ":algorithm").name, ":algorithm");
    } else if (key.name == "final_state") {
      request.results.final_state = Decoder<bool>::decode(call, value, "final_state");
    } else if (key.name == "states") {
      request.results.states = Decoder<bool>::decode(call, value, "states");
    } else {
      core::fail(core::ErrorKind::invalid_argument, argument, argument, " has the unknown key :", key.name);
    }
  }
  return request;
}

}  // namespace exphil::nif
