#include "core/names.hpp"

#include "core/error.hpp"

namespace exphil::core {

namespace {

using associative::Op;
using formulas::Discretization;

template <class Value>
struct Named {
  const char* name;
  Value value;
};

constexpr Named<Discretization> kDiscretizations[] = {
    {"zoh", Discretization::zoh},           {"foh", Discretization::foh},
    {"bilinear", Discretization::bilinear}, {"highorder", Discretization::highorder},
    {"poly", Discretization::poly},         {"rk4", Discretization::rk4}};
constexpr Named<Direction> kDirections[] = {
    {"forward", Direction::forward}, {"reverse", Direction::reverse}, {"both", Direction::both}};
constexpr Named<ScanAlgorithm> kAlgorithms[] = {{"auto", ScanAlgorithm::automatic},
                                                {"sequential", ScanAlgorithm::sequential},
                                                {"chunked", ScanAlgorithm::chunked}};
constexpr Named<Op> kOps[] = {{"cumsum", Op::cumsum},
                              {"cumprod", Op::cumprod},
                              {"cummax", Op::cummax},
                              {"cummin", Op::cummin},
                              {"linear_recurrence", Op::linear_recurrence}};

template <class Value, std::size_t N>
Value find(const Named<Value> (&values)[N], const std::string& name, const char* argument) {
  std::string known;
  for (const Named<Value>& each : values) {
    if (name == each.name) return each.value;
    known += std::string(known.empty() ? ":" : ", :") + each.name;
  }
  fail(ErrorKind::invalid_argument, argument, argument, " must be one of ", known, ", got :", name);
}

}  // namespace

Discretization discretization_named(const std::string& name, const char* argument) {
  return find(kDiscretizations, name, argument);
}

Direction direction_named(const std::string& name, const char* argument) {
  return find(kDirections, name, argument);
}

ScanAlgorithm scan_algorithm_named(const std::string& name, const char* argument) {
  return find(kAlgorithms, name, argument);
}

Op associative_op_named(const std::string& name, const char* argument) {
  return find(kOps, name, argument);
}

RecurrentOp recurrent_op_named(const std::string& name, const char* argument) {
  Named<RecurrentOp> ops[kRecurrentOps];
  for (std::size_t i = 0; i < kRecurrentOps; ++i) {
    const auto op = static_cast<RecurrentOp>(i);
    ops[i] = {recurrent_row(op).name, op};
  }
  return find(ops, name, argument);
}

}  // namespace exphil::core
