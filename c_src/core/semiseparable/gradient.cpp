#include "core/semiseparable/gradient.hpp"

#include <cmath>

#include "core/error.hpp"

namespace exphil::core {

namespace {

using Values = std::vector<double>;
using Rows = std::vector<Values>;  // one for each position of a sequence

std::size_t size(std::int64_t count) {
  return static_cast<std::size_t>(count);
}

// W x, plus bias where there is one. W {outs, x.size()}.
Values multiply(const std::vector<float>& matrix, const std::vector<float>& bias, const Values& x,
                std::size_t outs) {
  Values y(outs);
  for (std::size_t out = 0; out < outs; ++out) {
    double sum = bias.empty() ? 0.0 : double{bias[out]};
    for (std::size_t k = 0; k < x.size(); ++k) sum += double{matrix[out * x.size() + k]} * x[k];
    y[out] = sum;
  }
  return y;
}

// The gradient of y = W x: dW += dy x^T and, where x has a gradient, dx += W^T dy.
void multiply_back(const std::vector<float>& matrix, const Values& x, const Values& dy, Values* d_matrix,
                   Values* dx) {
  for (std::size_t out = 0; out < dy.size(); ++out) {
    for (std::size_t k = 0; k < x.size(); ++k) {
      (*d_matrix)[out * x.size() + k] += dy[out] * x[k];
      (*dx)[k] += double{matrix[out * x.size() + k]} * dy[out];
    }
  }
}

void add(const Values& from, Values* to) {
  for (std::size_t i = 0; i < from.size(); ++i) (*to)[i] += from[i];
}

// The forward values of one position; u_plain = U x, before the gates.
struct Position {
  Values x, inner, gates, u_plain, v_plain, k;
};

class SequenceGradient {
 public:
  SequenceGradient(const SemiseparableWeights& weights, const SemiseparableGradInput& input,
                   SemiseparableGrad* out)
      : w_(weights), in_(input), out_(*out) {}

  void run(std::int64_t batch) {
    first_ = batch * in_.forward.seq;
    forward();
    back_through_output();
    sum_over_time();
    for (std::size_t t = 0; t < positions_.size(); ++t) back_through_gates(t);
    back_through_convolution();
    for (const Values& row : dx_) out_.x.insert(out_.x.end(), row.begin(), row.end());
  }

 private:
  std::size_t rank() const { return size(w_.config.rank); }
  std::size_t hidden() const { return size(w_.config.hidden); }
  double dy(std::size_t t, std::size_t h) const { return double{in_.dy[(size(first_) + t) * hidden() + h]}; }

  void forward() {
    positions_.clear();
    for (std::int64_t t = 0; t < in_.forward.seq; ++t) {
      const float* row = in_.forward.x + (first_ + t) * w_.config.hidden;
      Position p;
      p.x.assign(row, row + hidden());
      p.inner = multiply(w_.gate_in, w_.gate_in_bias, p.x, size(w_.config.gate_hidden));
      for (double& value : p.inner) value = value < 0.0 ? 0.0 : value;
      p.gates = multiply(w_.gate_out, w_.gate_out_bias, p.inner, rank());
      for (double& gate : p.gates) gate = 1.0 / (1.0 + std::exp(-gate));
      p.u_plain = multiply(w_.u, {}, p.x, rank());
      p.v_plain = multiply(w_.v, {}, p.x, rank());
      p.k.assign(rank(), 0.0);
      positions_.push_back(p);
    }
    const std::size_t seq = positions_.size();
    for (std::size_t r = 0; r < rank(); ++r) {
      double sum = 0.0;
      for (Position& p : positions_) p.k[r] += sum += p.u_plain[r] * p.gates[r];
      sum = 0.0;
      for (std::size_t t = seq; in_.forward.bidirectional && t-- > 0;) {
        positions_[t].k[r] += sum += positions_[t].u_plain[r] * positions_[t].gates[r];
      }
    }
  }

  // y = O (k v) + o: computes the gradients of k and v.
  void back_through_output() {
    dk_.assign(positions_.size(), Values(rank()));
    dv_ = dk_;
    dx_.assign(positions_.size(), Values(hidden()));
    for (std::size_t t = 0; t < positions_.size(); ++t) {
      const Position& p = positions_[t];
      Values read(rank()), d_read(rank()), row(hidden());
      for (std::size_t r = 0; r < rank(); ++r) read[r] = p.k[r] * p.v_plain[r] * p.gates[r];
      for (std::size_t h = 0; h < hidden(); ++h) row[h] = dy(t, h);
      multiply_back(w_.output, read, row, &out_.output, &d_read);
      add(row, &out_.output_bias);
      for (std::size_t r = 0; r < rank(); ++r) {
        dk_[t][r] = d_read[r] * p.v_plain[r] * p.gates[r];
        dv_[t][r] = d_read[r] * p.k[r];
      }
    }
  }

  // u contributes to every k from its position on, and also to those before it with both directions.
  void sum_over_time() {
    du_.assign(positions_.size(), Values(rank()));
    for (std::size_t r = 0; r < rank(); ++r) {
      double sum = 0.0;
      for (std::size_t t = positions_.size(); t-- > 0;) du_[t][r] += sum += dk_[t][r];
      sum = 0.0;
      for (std::size_t t = 0; in_.forward.bidirectional && t < positions_.size(); ++t) {
        du_[t][r] += sum += dk_[t][r];
      }
    }
  }

  void back_through_gates(std::size_t t) {
    const Position& p = positions_[t];
    const double by_penalty =
        in_.d_penalty / static_cast<double>(in_.forward.batch * in_.forward.seq * w_.config.rank);
    Values du(rank()), dv(rank()), d_gates(rank()), d_inner(p.inner.size());
    for (std::size_t r = 0; r < rank(); ++r) {
      const double gate = p.gates[r];
      du[r] = du_[t][r] * gate;
      dv[r] = dv_[t][r] * gate;
      d_gates[r] = (du_[t][r] * p.u_plain[r] + dv_[t][r] * p.v_plain[r] + by_penalty) * gate * (1.0 - gate);
    }
    multiply_back(w_.u, p.x, du, &out_.u, &dx_[t]);
    multiply_back(w_.v, p.x, dv, &out_.v, &dx_[t]);
    multiply_back(w_.gate_out, p.inner, d_gates, &out_.gate_out, &d_inner);
    add(d_gates, &out_.gate_out_bias);
    for (std::size_t i = 0; i < d_inner.size(); ++i) {
      if (p.inner[i] == 0.0) d_inner[i] = 0.0;
    }
    multiply_back(w_.gate_in, p.x, d_inner, &out_.gate_in, &dx_[t]);
    add(d_inner, &out_.gate_in_bias);
  }

  void back_through_convolution() {
    const std::size_t seq = positions_.size();
    for (std::size_t t = 0; t < seq; ++t) {
      for (std::size_t tap = 0; tap < 3; ++tap) {
        if (t + tap < 1 || t + tap > seq) continue;
        const std::size_t from = t + tap - 1;  // the position that this tap reads
        for (std::size_t h = 0; h < hidden(); ++h) {
          out_.conv[3 * h + tap] += dy(t, h) * positions_[from].x[h];
          dx_[from][h] += dy(t, h) * double{w_.conv[3 * h + tap]};
        }
      }
    }
  }

  const SemiseparableWeights& w_;
  const SemiseparableGradInput& in_;
  SemiseparableGrad& out_;
  std::int64_t first_ = 0;  // the sequence's first position
  std::vector<Position> positions_;
  Rows dk_, du_, dv_, dx_;
};

}  // namespace

SemiseparableGrad semiseparable_grad(const SemiseparableWeights& w, const SemiseparableGradInput& input) {
  SemiseparableGrad out;
  out.gate_in.resize(w.gate_in.size());
  out.gate_in_bias.resize(w.gate_in_bias.size());
  out.gate_out.resize(w.gate_out.size());
  out.gate_out_bias.resize(w.gate_out_bias.size());
  out.u.resize(w.u.size());
  out.v.resize(w.v.size());
  out.conv.resize(w.conv.size());
  out.output.resize(w.output.size());
  out.output_bias.resize(w.output_bias.size());
  SequenceGradient sequence(w, input, &out);
  for (std::int64_t b = 0; b < input.forward.batch; ++b) sequence.run(b);
  return out;
}

SemiseparableGradInput validate_semiseparable_grad(const SemiseparableConfig& config, const TensorView& x,
                                                   const TensorView& dy, double d_penalty,
                                                   bool bidirectional) {
  SemiseparableGradInput input;
  input.forward = validate_semiseparable(config, x, bidirectional);
  if (dy.dtype != Dtype::f32 || dy.shape != x.shape) {
    fail(ErrorKind::invalid_argument, "dy", "dy must be f32 of the shape of x, ", x.shape.to_string(),
         "; got ", dtype_name(dy.dtype), " of shape ", dy.shape.to_string());
  }
  check_bytes(dy, "dy");
  input.dy = static_cast<const float*>(dy.data);
  input.d_penalty = d_penalty;
  return input;
}

}  // namespace exphil::core
