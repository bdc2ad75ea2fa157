// The formulas of gated cells: against the same by hand, and their gradients against finite differences.
#include "kernels/common/cells.cuh"

#include <array>
#include <cmath>

#include "core/scalar_math.hpp"
#include "support/catch.hpp"
#include "support/numbers.hpp"

namespace exphil {

namespace {

using core::ScalarMath;
using formulas::Cell;

struct Unit {
  std::array<double, 4> x, h;
  std::array<double, 2> states;
};

Unit random_unit(test::Random& random) {
  Unit unit{};
  for (double& v : unit.x) v = random.uniform(-3, 3);
  for (double& v : unit.h) v = random.uniform(-2, 2);
  for (double& v : unit.states) v = random.uniform(-1, 1);
  return unit;
}

template <Cell kCell, class T>
std::array<T, 2> step(const Unit& unit) {
  T x[4], h[4], states[2];
  for (int i = 0; i < 4; ++i) x[i] = static_cast<T>(unit.x[i]), h[i] = static_cast<T>(unit.h[i]);
  for (int i = 0; i < 2; ++i) states[i] = static_cast<T>(unit.states[i]);
  const T out = formulas::advance_cell<kCell, ScalarMath<T>>(x, h, states);
  CHECK(out == states[0]);
  return {states[0], states[1]};
}

double sigma(double v) {
  return 1 / (1 + std::exp(-v));
}

// The states after the step by the formulas of the papers.
std::array<double, 2> by_hand(Cell cell, const Unit& u) {
  const auto &x = u.x, &h = u.h;
  const double before = u.states[0];
  switch (cell) {
    case Cell::gru: {
      const double z = sigma(x[1] + h[1]);
      return {(1 - z) * std::tanh(x[2] + sigma(x[0] + h[0]) * h[2]) + z * before, u.states[1]};
    }
    case Cell::lstm: {
      const double c = sigma(x[1] + h[1]) * u.states[1] + sigma(x[0] + h[0]) * std::tanh(x[2] + h[2]);
      return {sigma(x[3] + h[3]) * std::tanh(c), c};
    }
    case Cell::min_gru:
      return {(1 - sigma(x[0])) * before + sigma(x[0]) * x[1], u.states[1]};
    default: {
      const double f = sigma(x[0]), i = sigma(x[1]);
      return {(f * before + i * x[2]) / (f + i + 1e-6), u.states[1]};
    }
  }
}

// The derivative of <weights, states after the step> by one value of the unit.
template <Cell kCell>
double slope(Unit& unit, double& place, const std::array<double, 2>& weights) {
  const double at = place, distance = 1e-5;
  const auto loss = [&](double value) {
    place = value;
    const std::array<double, 2> after = step<kCell, double>(unit);
    return weights[0] * after[0] + (formulas::states_of(kCell) > 1 ? weights[1] * after[1] : 0.0);
  };
  const double difference = loss(at + distance) - loss(at - distance);
  place = at;
  return difference / (2 * distance);
}

template <Cell kCell>
void check_gradient(test::Random& random) {
  for (int i = 0; i < 20; ++i) {
    Unit unit = random_unit(random);
    const std::array<double, 2> weights = {random.uniform(-1, 1), random.uniform(-1, 1)};
    std::array<double, 4> d_x{}, d_h{};
    std::array<double, 2> d_states = weights;
    formulas::cell_gradient<kCell, ScalarMath<double>>(unit.x.data(), unit.h.data(), unit.states.data(),
                                                       d_states.data(), d_x.data(), d_h.data());
    for (int g = 0; g < formulas::gates_of(kCell); ++g) {
      CAPTURE(g);
      CHECK(std::abs(slope<kCell>(unit, unit.x[g], weights) - d_x[g]) < 1e-8);
      if (formulas::recurrent(kCell)) CHECK(std::abs(slope<kCell>(unit, unit.h[g], weights) - d_h[g]) < 1e-8);
    }
    for (int s = 0; s < formulas::states_of(kCell); ++s) {
      CAPTURE(s);
      CHECK(std::abs(slope<kCell>(unit, unit.states[s], weights) - d_states[s]) < 1e-8);
    }
  }
}

template <Cell kCell>
void check_cell() {
  test::Random random(static_cast<unsigned>(kCell) + 1);
  for (int i = 0; i < 50; ++i) {
    const Unit unit = random_unit(random);
    const std::array<double, 2> expected = by_hand(kCell, unit), found = step<kCell, double>(unit);
    const std::array<float, 2> single = step<kCell, float>(unit);
    for (int s = 0; s < formulas::states_of(kCell); ++s) {
      CHECK(std::abs(found[s] - expected[s]) < 1e-14);
      CHECK(std::abs(double{single[s]} - expected[s]) < 1e-6);
    }
  }
  check_gradient<kCell>(random);
}

}  // namespace

TEST_CASE("a gated cell and its gradient are those of the papers", "[policy][cells]") {
  SECTION("GRU") {
    check_cell<Cell::gru>();
  }
  SECTION("LSTM") {
    check_cell<Cell::lstm>();
  }
  SECTION("minGRU") {
    check_cell<Cell::min_gru>();
  }
  SECTION("minLSTM") {
    check_cell<Cell::min_lstm>();
  }
}

TEST_CASE("the hyperbolic tangent of f32 is right to two units in the last place", "[policy][cells]") {
  for (double v = 1e-6; v < 30; v *= 1.001) {
    const float at = static_cast<float>(v), exact = std::tanh(at);
    CAPTURE(at);
    CHECK(std::abs(formulas::hyperbolic_tangent<ScalarMath<float>>(at) - exact) <= 2.5e-7f * exact);
    CHECK(formulas::hyperbolic_tangent<ScalarMath<float>>(-at) ==
          -formulas::hyperbolic_tangent<ScalarMath<float>>(at));
  }
  CHECK(formulas::hyperbolic_tangent<ScalarMath<float>>(200.0f) == 1.0f);
  CHECK(formulas::hyperbolic_tangent<ScalarMath<float>>(-200.0f) == -1.0f);
}

}  // namespace exphil
