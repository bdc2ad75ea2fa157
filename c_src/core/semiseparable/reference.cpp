#include "core/semiseparable/reference.hpp"

#include <cmath>

namespace exphil::core {

namespace {

using Values = std::vector<double>;

// W x, plus bias where there is one. W {outs, x.size()}.
Values multiply(const std::vector<float>& matrix, const std::vector<float>& bias, const Values& x,
                std::int64_t outs) {
  Values y(static_cast<std::size_t>(outs));
  for (std::size_t out = 0; out < y.size(); ++out) {
    double sum = bias.empty() ? 0.0 : double{bias[out]};
    for (std::size_t k = 0; k < x.size(); ++k) sum += double{matrix[out * x.size() + k]} * x[k];
    y[out] = sum;
  }
  return y;
}

// One sequence, as vectors of positions.
struct Sequence {
  std::vector<Values> x, gates, u, v;
};

Sequence project(const SemiseparableWeights& w, const float* x, std::int64_t seq) {
  const SemiseparableConfig& c = w.config;
  Sequence s;
  for (std::int64_t t = 0; t < seq; ++t) {
    const float* row = x + t * c.hidden;
    s.x.emplace_back(row, row + c.hidden);
    Values inner = multiply(w.gate_in, w.gate_in_bias, s.x.back(), c.gate_hidden);
    for (double& value : inner) value = value < 0.0 ? 0.0 : value;
    Values gates = multiply(w.gate_out, w.gate_out_bias, inner, c.rank);
    Values u = multiply(w.u, {}, s.x.back(), c.rank), v = multiply(w.v, {}, s.x.back(), c.rank);
    for (std::size_t r = 0; r < gates.size(); ++r) {
      gates[r] = 1.0 / (1.0 + std::exp(-gates[r]));
      u[r] *= gates[r];
      v[r] *= gates[r];
    }
    s.gates.push_back(gates);
    s.u.push_back(u);
    s.v.push_back(v);
  }
  return s;
}

// k v at each position.
std::vector<Values> read_out(const Sequence& s, std::int64_t rank, bool bidirectional) {
  const std::size_t seq = s.u.size(), ranks = static_cast<std::size_t>(rank);
  std::vector<Values> k(seq, Values(ranks));
  for (std::size_t r = 0; r < ranks; ++r) {
    double sum = 0.0;
    for (std::size_t t = 0; t < seq; ++t) k[t][r] = sum += s.u[t][r];
    sum = 0.0;
    for (std::size_t t = seq; bidirectional && t-- > 0;) k[t][r] += sum += s.u[t][r];
    for (std::size_t t = 0; t < seq; ++t) k[t][r] *= s.v[t][r];
  }
  return k;
}

}  // namespace

SemiseparableReference semiseparable_reference(const SemiseparableWeights& w,
                                               const SemiseparableInput& input) {
  const SemiseparableConfig& c = w.config;
  const std::size_t hidden = static_cast<std::size_t>(c.hidden);
  SemiseparableReference out;
  for (std::int64_t b = 0; b < input.batch; ++b) {
    const Sequence s = project(w, input.x + b * input.seq * c.hidden, input.seq);
    const std::vector<Values> kv = read_out(s, c.rank, input.bidirectional);
    for (std::size_t t = 0; t < s.x.size(); ++t) {
      const Values y = multiply(w.output, w.output_bias, kv[t], c.hidden);
      for (std::size_t h = 0; h < hidden; ++h) {
        const double before = t > 0 ? s.x[t - 1][h] : 0.0, after = t + 1 < s.x.size() ? s.x[t + 1][h] : 0.0;
        const float* taps = &w.conv[3 * h];
        out.y.push_back(y[h] + double{taps[0]} * before + double{taps[1]} * s.x[t][h] +
                        double{taps[2]} * after);
      }
      out.gates.insert(out.gates.end(), s.gates[t].begin(), s.gates[t].end());
    }
  }
  return out;
}

}  // namespace exphil::core
