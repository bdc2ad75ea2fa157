#include "nif/scan_request.hpp"

namespace exphil::nif {

namespace {

using core::Direction;
using core::ScanAlgorithm;
using formulas::Discretization;

template <class Value>
struct Choice {
  const char* name;
  Value value;
};

constexpr Choice<Discretization> kDiscretizations[] = {
    {"zoh", Discretization::zoh},           {"foh", Discretization::foh},
    {"bilinear", Discretization::bilinear}, {"highorder", Discretization::highorder},
    {"poly", Discretization::poly},         {"rk4", Discretization::rk4}};
constexpr Choice<Direction> kDirections[] = {
    {"forward", Direction::forward}, {"reverse", Direction::reverse}, {"both", Direction::both}};
constexpr Choice<ScanAlgorithm> kAlgorithms[] = {{"auto", ScanAlgorithm::automatic},
                                                 {"sequential", ScanAlgorithm::sequential},
                                                 {"chunked", ScanAlgorithm::chunked}};

template <class Value, std::size_t N>
Value choose(const Choice<Value> (&choices)[N], const Atom& atom, const char* argument) {
  std::string known;
  for (const Choice<Value>& choice : choices) {
    if (atom.name == choice.name) return choice.value;
    known += std::string(known.empty() ? ":" : ", :") + choice.name;
  }
  core::fail(core::ErrorKind::invalid_argument, argument, argument, " must be one of ", known,
             ", got :", atom.name);
}

}  // namespace

ScanRequest Decoder<ScanRequest>::decode(Call& call, Term term, const char* argument) {
  ScanRequest request;
  core::ScanOptions& options = request.options;
  for (const auto& [key, value] : Decoder<Map>::decode(call, term, argument)) {
    if (key.name == "discretization") {
      const Atom atom = Decoder<Atom>::decode(call, value, ":discretization");
      options.discretization = choose(kDiscretizations, atom, ":discretization");
    } else if (key.name == "dt_softplus") {
      options.dt_softplus = Decoder<bool>::decode(call, value, ":dt_softplus");
    } else if (key.name == "dt_range") {
      const auto range = Decoder<std::optional<std::tuple<double, double>>>::decode(call, value, ":dt_range");
      if (!range) continue;
      options.dt_min = static_cast<float>(std::get<0>(*range));
      options.dt_max = static_cast<float>(std::get<1>(*range));
    } else if (key.name == "direction") {
      const Atom atom = Decoder<Atom>::decode(call, value, ":reverse");
      options.direction = choose(kDirections, atom, ":reverse");
    } else if (key.name == "algorithm") {
      const Atom atom = Decoder<Atom>::decode(call, value, ":algorithm");
      options.algorithm = choose(kAlgorithms, atom, ":algorithm");
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
