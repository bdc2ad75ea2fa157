#include "core/scan/reference.hpp"

#include <cstddef>
#include <vector>

#include "core/half.hpp"
#include "core/scan/reference_operands.hpp"

namespace exphil::core {

namespace {

using formulas::Discretization;

// The outputs of one pass over time; null where not wanted. y may have the problem's own dtype.
template <class T>
struct Sinks {
  void* y = nullptr;
  Dtype y_dtype = Dtype::f64;
  T* final_state = nullptr;
  T* states = nullptr;

  void put_y(std::int64_t index, T value) const {
    switch (y_dtype) {
      case Dtype::f64:
        static_cast<double*>(y)[index] = static_cast<double>(value);
        break;
      case Dtype::f16:
        static_cast<std::uint16_t*>(y)[index] = f32_to_f16(static_cast<float>(value));
        break;
      case Dtype::bf16:
        static_cast<std::uint16_t*>(y)[index] = f32_to_bf16(static_cast<float>(value));
        break;
      default:
        static_cast<float*>(y)[index] = static_cast<float>(value);
    }
  }
};

template <Discretization D, class W>
class Loop {
 public:
  using T = RealOf<W>;
  using Math = ScalarMath<T>;

  explicit Loop(const ScanCall& call) : p_(call.shape), in_(call) {}

  void run(bool reverse, const Sinks<T>& sinks) const {
    std::vector<W> h(static_cast<std::size_t>(p_.dim * p_.state));
    for (std::int64_t batch = 0; batch < p_.batch; ++batch) {
      begin(batch, &h);
      for (std::int64_t i = 0; i < p_.seq; ++i) {
        const std::int64_t t = reverse ? p_.seq - 1 - i : i;
        for (std::int64_t d = 0; d < p_.dim; ++d) step(batch, t, d, h.data() + d * p_.state, sinks);
        const std::int64_t row = (batch * p_.seq + t) * p_.dim * p_.state;
        if (sinks.states != nullptr) store(h, sinks.states, row);
      }
      if (sinks.final_state != nullptr) store(h, sinks.final_state, batch * p_.dim * p_.state);
    }
  }

 private:
  void begin(std::int64_t batch, std::vector<W>* h) const {
    const std::int64_t count = p_.dim * p_.state;
    for (std::int64_t i = 0; i < count; ++i) (*h)[i] = in_.initial(batch * count + i);
  }

  static void store(const std::vector<W>& h, T* to, std::int64_t first) {
    for (std::size_t i = 0; i < h.size(); ++i) {
      const std::size_t at = static_cast<std::size_t>(first) + i;
      if constexpr (kIsComplex<W>) {
        to[2 * at] = h[i].re;
        to[2 * at + 1] = h[i].im;
      } else {
        to[at] = h[i];
      }
    }
  }

  void step(std::int64_t batch, std::int64_t t, std::int64_t d, W* h, const Sinks<T>& sinks) const {
    const std::int64_t at = (batch * p_.seq + t) * p_.dim + d;
    const W* b = in_.b.data() + in_.projection_row(p_.b_layout, batch, t, d);
    const W* c = in_.c.data() + in_.projection_row(p_.c_layout, batch, t, d);
    in_.template advance<D>(d, in_.active_dt(at, d), in_.x[at], b, h);
    T y = in_.readout(c, h);
    if (!in_.skip.empty()) y += in_.skip[d] * in_.x[at];
    if (!in_.z.empty()) y *= formulas::silu<Math>(in_.z[at]);
    if (sinks.y != nullptr) sinks.put_y(at, y);
  }

  const ScanShape& p_;
  const ReferenceOperands<W> in_;
};

template <class W>
void dispatch(const ScanCall& call, bool reverse, const Sinks<RealOf<W>>& sinks) {
  switch (call.shape.options.discretization) {
    case Discretization::zoh:
      return Loop<Discretization::zoh, W>(call).run(reverse, sinks);
    case Discretization::foh:
      return Loop<Discretization::foh, W>(call).run(reverse, sinks);
    case Discretization::bilinear:
      return Loop<Discretization::bilinear, W>(call).run(reverse, sinks);
    case Discretization::highorder:
      return Loop<Discretization::highorder, W>(call).run(reverse, sinks);
    case Discretization::poly:
      return Loop<Discretization::poly, W>(call).run(reverse, sinks);
    case Discretization::rk4:
      return Loop<Discretization::rk4, W>(call).run(reverse, sinks);
  }
}

template <class T>
void both_directions(const ScanCall& call, const Sinks<T>& sinks, void* y_reverse) {
  const auto run = [&](bool reverse, const Sinks<T>& to) {
    if (call.shape.complex) {
      dispatch<Complex<T>>(call, reverse, to);
    } else {
      dispatch<T>(call, reverse, to);
    }
  };
  const Direction direction = call.shape.options.direction;
  run(direction == Direction::reverse, sinks);
  if (direction == Direction::both) run(true, Sinks<T>{y_reverse, sinks.y_dtype, nullptr, nullptr});
}

}  // namespace

void scan_reference(const ScanCall& call, const ScanReferenceOutputs& outputs) {
  both_directions<double>(call, {outputs.y, Dtype::f64, outputs.final_state, outputs.states},
                          outputs.y_reverse);
}

void scan_reference_f32(const ScanCall& call) {
  const ScanOperands<void*>& to = call.operands;
  both_directions<float>(
      call,
      {to[ScanOperand::y], call.shape.dtype, static_cast<float*>(to[ScanOperand::final_state]),
       static_cast<float*>(to[ScanOperand::states])},
      to[ScanOperand::y_reverse]);
}

}  // namespace exphil::core
