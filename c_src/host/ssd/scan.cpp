#include "host/ssd/scan.hpp"

#include "core/scalar_math.hpp"
#include "core/work/background.hpp"
#include "core/work/parallel.hpp"
#include "host/simd/thread_scratch.hpp"
#include "host/ssd/piece.hpp"

namespace exphil::host {

namespace {

using core::SsdCall;
using core::SsdShape;
using Id = core::SsdOperand;

// The scratch of one piece: its states, and the rows of so many steps.
struct Stretch {
  Stretch(const SsdShape& s, float* memory) : states(memory) {
    const std::int64_t values = kWalkSteps * padded(kPieceChannels), keys = kWalkSteps * padded(s.state);
    x = states + kPieceChannels * padded(s.state), y = x + values, z = y + values;
    b = z + values, c = b + keys, dt = c + keys;
  }
  static std::int64_t floats(const SsdShape& s) {
    return (kPieceChannels + 2 * kWalkSteps) * padded(s.state) + 3 * kWalkSteps * padded(kPieceChannels) +
           kWalkSteps;
  }
  float *states, *x, *y, *z, *b, *c, *dt;
};

class PieceScan {
 public:
  PieceScan(const SsdCall& call, const Piece& piece, float* memory)
      : s_(call.shape), p_(piece), at_(call, piece), m_(call.shape, memory) {
    copy_states(at_.states(Id::initial_state), s_.state, m_.states, padded(s_.state));
  }

  void run() {
    for (std::int64_t t = 0; t < s_.seq; t += kWalkSteps) {
      core::give_way();
      advance(t, std::min(kWalkSteps, s_.seq - t));
    }
    float* const last = at_.states(Id::final_state);
    if (last != nullptr) copy_states(m_.states, padded(s_.state), last, s_.state);
  }

 private:
  void advance(std::int64_t t, std::int64_t count) {
    at_.active_dt(t, count, m_.dt);
    HeadRows heads = at_.heads(at_.read(Id::x, t, count, m_.x), at_.read(Id::b, t, count, m_.b),
                               at_.read(Id::c, t, count, m_.c), m_.dt, count);
    heads.states = m_.states, heads.from = m_.states;
    heads.out = at_.target(Id::y, t, m_.y);
    if (!s_.has(Id::y)) heads.unanswered = count;
    advance_heads(heads, 0, p_.channels);
    if (!s_.has(Id::y)) return;
    if (s_.has(Id::z)) gate(at_.read(Id::z, t, count, m_.z), heads.out, count);
    at_.settle(Id::y, t, count, m_.y);
  }
  void gate(const MatrixRows& z, const MatrixRows& y, std::int64_t count) const {
    for (std::int64_t t = 0; t < count; ++t) {
      for (std::int64_t i = 0; i < p_.channels; ++i) {
        y.data[t * y.step + i] *= formulas::silu<core::ScalarMath<float>>(z.data[t * z.step + i]);
      }
    }
  }
  // from: null for zeros.
  void copy_states(const float* from, std::int64_t from_step, float* to, std::int64_t to_step) const {
    for (std::int64_t row = 0; row < p_.channels; ++row, to += to_step) {
      if (from == nullptr || to_step > s_.state) std::fill_n(to, to_step, 0.0f);
      if (from != nullptr) std::copy_n(from + row * from_step, s_.state, to);
    }
  }

  const SsdShape& s_;
  const Piece p_;
  const PieceRows at_;
  const Stretch m_;
};

}  // namespace

void ssd_scan(const SsdCall& call) {
  const SsdShape& s = call.shape;
  core::parallel_for(s.batch * s.heads * pieces_of_head(s), 1, [&](std::int64_t begin, std::int64_t end) {
    float* const memory = thread_scratch(Scratch::scan, Stretch::floats(s));
    for (; begin < end; ++begin) PieceScan(call, piece_of(s, begin), memory).run();
  });
}

}  // namespace exphil::host
