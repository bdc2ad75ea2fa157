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
  using Range = std::tuple<double, double>;
  using Fields = std::tuple<Atom, bool, std::optional<Range>, Atom, Atom, bool, bool>;
  const auto [discretization, dt_softplus, dt_range, direction, algorithm, final_state, states] =
      Decoder<Fields>::decode(call, term, argument);
  ScanRequest request;
  request.options.discretization = choose(kDiscretizations, discretization, ":discretization");
  request.options.dt_softplus = dt_softplus;
  if (dt_range) {
    request.options.dt_min = static_cast<float>(std::get<0>(*dt_range));
    request.options.dt_max = static_cast<float>(std::get<1>(*dt_range));
  }
  request.options.direction = choose(kDirections, direction, ":reverse");
  request.options.algorithm = choose(kAlgorithms, algorithm, ":algorithm");
  request.final_state = final_state;
  request.states = states;
  return request;
}

}  // namespace exphil::nif
