#include "host/policy/gradient_trapezoid.hpp"

#include <algorithm>
#include <vector>

#include "core/policy/ranks.hpp"
#include "core/scalar_math.hpp"
#include "core/work/parallel.hpp"
#include "kernels/common/trapezoid.cuh"

namespace exphil::host {

namespace {

using Math = core::ScalarMath<float>;
using Stored = VectorGradients::Stored;
constexpr std::int64_t kAnyStep = VectorGradients::kAnyStep;

float* row_at(const MatrixRows& rows, std::int64_t row) {
  return rows.data + row * rows.step;
}

// body(sequence, its first row), for some sequences in each thread.
template <class Body>
void each_sequence(const RecordedPhase& recorded, const Body& body) {
  const std::int64_t seq = recorded.group.all->seq;
  core::parallel_for(recorded.group.count, 1, [&](std::int64_t begin, std::int64_t end) {
    for (; begin < end; ++begin) body(begin, begin * seq);
  });
}

}  // namespace

void phase_back(const core::Delay& p, const RecordedPhase& recorded) {
  VectorGradients& v = recorded.vectors;
  const MatrixRows dy = v.whole(p.out);
  const Stored dx = v.stored(p.in, kAnyStep);
  each_sequence(recorded, [&](std::int64_t sequence, std::int64_t first) {
    float* const d_state = recorded.d_state(p.state, sequence);
    if (d_state != nullptr) std::copy_n(row_at(dy, first), p.in.size, d_state);
    const std::int64_t last = first + recorded.group.all->seq - 1;
    copy_rows({row_at(dy, first + 1), dy.step}, {row_at(dx.rows, first), dx.rows.step}, last - first, 0,
              p.in.size);
    std::fill_n(row_at(dx.rows, last), p.in.size, 0.0f);
  });
  v.settle(dx);
}

void phase_back(const core::Angle& p, const RecordedPhase& recorded) {
  VectorGradients& v = recorded.vectors;
  const MatrixRows dy = v.whole(p.out), turn = rows_at(recorded.at, p.out, 0),
                   rate = rows_at(recorded.at, p.rate, 0), dt = rows_at(recorded.at, p.dt, 0);
  const Stored d_rate = v.stored(p.rate, kAnyStep), d_dt = v.stored(p.dt, kAnyStep, 1);
  each_sequence(recorded, [&](std::int64_t sequence, std::int64_t first) {
    std::vector<float> d(static_cast<std::size_t>(p.heads() * p.angles()));
    for (std::int64_t row = first + recorded.group.all->seq; row-- > first;) {
      float *const to_rate = row_at(d_rate.rows, row), *const to_dt = row_at(d_dt.rows, row);
      std::fill_n(to_rate, p.angles(), 0.0f), std::fill_n(to_dt, p.heads(), 0.0f);
      for (std::int64_t i = 0; i < p.heads() * p.angles(); ++i) {
        const float *const t = row_at(turn, row) + 2 * i, *const d_turn = row_at(dy, row) + 2 * i;
        float& d_angle = d[static_cast<std::size_t>(i)];
        d_angle += t[0] * d_turn[1] - t[1] * d_turn[0];
        const std::int64_t angle = i % p.angles(), head = i / p.angles();
        const auto g =
            formulas::angle_gradient<Math>(row_at(rate, row)[angle], row_at(dt, row)[head], d_angle);
        to_rate[angle] += g.rate, to_dt[head] += g.dt;
      }
    }
    float* const d_state = recorded.d_state(p.state, sequence);
    if (d_state != nullptr) std::copy(d.begin(), d.end(), d_state);
  });
  v.settle(d_rate), v.settle(d_dt);
}

namespace {

// One output of a rank and a head, whose gradient is `d`. Rotated back is what was rotated.
void rotated_back(const core::Rotation& p, const core::RotatedRow& r, const float* turn, const float* out,
                  float* d, float* d_turn) {
  for (std::int64_t j = 0; j < p.angles(); ++j) {
    const std::int64_t first = r.first_of(j), second = r.second_of(j);
    const float cosine = turn[2 * j], sine = turn[2 * j + 1], d_x = d[first], d_y = d[second];
    const float x = out[first] * cosine + out[second] * sine, y = out[second] * cosine - out[first] * sine;
    d_turn[2 * j] += d_x * x + d_y * y;
    d_turn[2 * j + 1] += d_y * x - d_x * y;
    d[first] = d_x * cosine + d_y * sine, d[second] = d_y * cosine - d_x * sine;
  }
}

}  // namespace

void phase_back(const core::Rotation& p, const RecordedPhase& recorded) {
  VectorGradients& v = recorded.vectors;
  const MatrixRows dy = v.whole(p.out), turn = rows_at(recorded.at, p.turn, 0),
                   out = rows_at(recorded.at, p.out, 0);
  const Stored dx = v.stored(p.in, kAnyStep), d_turn = v.stored(p.turn, kAnyStep, 1);
  each_sequence(recorded, [&](std::int64_t sequence, std::int64_t begin) {
    std::vector<float> d(static_cast<std::size_t>(p.size()));
    float* const d_bias = recorded.sum(kWeight, sequence);
    for (std::int64_t row = begin; row < begin + recorded.group.all->seq; ++row) {
      std::fill_n(row_at(dx.rows, row), p.in.size, 0.0f);
      std::fill_n(row_at(d_turn.rows, row), p.turn.size, 0.0f);
      for (std::int64_t i = 0; i < p.ranks * p.heads; ++i) {
        const core::RotatedRow r(p, i);
        std::copy_n(row_at(dy, row) + i * p.size(), p.size(), d.data());
        rotated_back(p, r, row_at(turn, row) + r.turn_at, row_at(out, row) + i * p.size(), d.data(),
                     row_at(d_turn.rows, row) + r.turn_at);
        for (std::int64_t k = 0; k < p.size(); ++k) {
          row_at(dx.rows, row)[r.in_at + k] += d[static_cast<std::size_t>(k)];
          d_bias[r.bias_at + k] += d[static_cast<std::size_t>(k)];
        }
      }
    }
  });
  v.settle(dx), v.settle(d_turn);
}

void phase_back(const core::Trapezoid& p, const RecordedPhase& recorded) {
  VectorGradients& v = recorded.vectors;
  const std::int64_t heads = p.dt.size;
  const MatrixRows dy = v.whole(p.out), dt = rows_at(recorded.at, p.dt, 0), a = rows_at(recorded.at, p.a, 0),
                   mix = rows_at(recorded.at, p.mix, 0);
  const Stored d_dt = v.stored(p.dt, kAnyStep), d_a = v.stored(p.a, kAnyStep, 1),
               d_mix = v.stored(p.mix, kAnyStep, 2);
  each_sequence(recorded, [&](std::int64_t, std::int64_t begin) {
    for (std::int64_t row = begin; row < begin + recorded.group.all->seq; ++row) {
      for (std::int64_t h = 0; h < heads; ++h) {
        const float* const d = row_at(dy, row) + h;
        const formulas::TrapezoidStep<float> of_step{d[0], d[heads], d[2 * heads]};
        const auto g = formulas::trapezoid_gradient<Math>(row_at(dt, row)[h], row_at(a, row)[h],
                                                          row_at(mix, row)[h], p.floor, of_step);
        row_at(d_dt.rows, row)[h] = g.dt, row_at(d_a.rows, row)[h] = g.a;
        row_at(d_mix.rows, row)[h] = g.mix;
      }
    }
  });
  v.settle(d_dt), v.settle(d_a), v.settle(d_mix);
}

void phase_back(const core::RankScale& p, const RecordedPhase& recorded) {
  VectorGradients& v = recorded.vectors;
  const MatrixRows dy = v.whole(p.out), x = rows_at(recorded.at, p.in, 0);
  const Stored dx = v.stored(p.in, kAnyStep);
  const std::int64_t one = p.heads * p.channels();
  const float* const weight = recorded.packed.weights[kWeight];
  each_sequence(recorded, [&](std::int64_t sequence, std::int64_t begin) {
    float* const d_weight = recorded.sum(kWeight, sequence);
    for (std::int64_t row = begin; row < begin + recorded.group.all->seq; ++row) {
      std::fill_n(row_at(dx.rows, row), p.in.size, 0.0f);
      for (std::int64_t i = 0; i < p.ranks * one; ++i) {
        const std::int64_t at = core::scale_index(p, i), in = p.back ? i : i % one;
        const float d = row_at(dy, row)[p.back ? i % one : i];
        d_weight[at] += d * row_at(x, row)[in];
        row_at(dx.rows, row)[in] += d * weight[at];
      }
    }
  });
  v.settle(dx);
}

}  // namespace exphil::host
