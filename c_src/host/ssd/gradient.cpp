// The gradient of scan.hpp.
#include <vector>

#include "core/scalar_math.hpp"
#include "core/work/background.hpp"
#include "core/work/parallel.hpp"
#include "host/simd/convert.hpp"
#include "host/simd/thread_scratch.hpp"
#include "host/ssd/piece.hpp"
#include "host/ssd/scan.hpp"

namespace exphil::host {

namespace {

using core::SsdCall;
using core::SsdShape;
using Id = core::SsdOperand;
using Math = core::ScalarMath<float>;

// Floats of what the pieces of some sequences pass back to b, c and dt: 64 MB.
constexpr std::int64_t kMostParts = std::int64_t{1} << 24;

// What the pieces of `sequences` sequences pass back to what they share; sums over pieces come later.
struct Parts {
  Parts(const SsdShape& s, std::int64_t sequences)
      : pieces(s.heads * pieces_of_head(s)),
        d_b(sequences * pieces * s.seq * padded(s.state)),
        d_c(sequences * pieces * s.seq * padded(s.state)),
        d_dt(sequences * pieces * s.seq) {}
  static std::int64_t floats(const SsdShape& s) {
    return s.heads * pieces_of_head(s) * s.seq * (2 * padded(s.state) + 1);
  }
  const std::int64_t pieces;  // of a sequence
  AlignedBuffer d_b, d_c, d_dt;
};

// Those of the whole batch, by sequence and piece or head.
struct Sums {
  explicit Sums(const SsdShape& s)
      : a(s.batch * s.heads * pieces_of_head(s)),
        d(s.skip_of_head ? s.batch * s.heads * pieces_of_head(s) : s.batch * s.heads * s.headdim),
        dt_bias(static_cast<std::size_t>(s.batch * s.heads)) {}
  AlignedBuffer a, d;
  std::vector<double> dt_bias;
};

// One piece, back through all of time.
class PieceBack {
 public:
  PieceBack(const SsdCall& call, const Piece& piece) : s_(call.shape), p_(piece), at_(call, piece) {}

  // number: of the piece, among those of the whole batch; in_slice: among those of `parts`.
  void run(std::int64_t number, std::int64_t in_slice, Parts* parts, Sums* sums) {
    HeadRows rows;
    rows.keys = s_.state, rows.channels = p_.channels, rows.seq = s_.seq;
    const std::int64_t walk = head_gradient_scratch_floats(rows), values = s_.seq * padded(p_.channels);
    const std::int64_t keys = s_.seq * padded(s_.state);
    AlignedBuffer large;
    float* const memory =
        thread_scratch(Scratch::gradient, walk + 4 * values + 2 * keys + 3 * s_.seq, &large);
    float *const x = memory + walk, *const dy = x + values, *const z = dy + values, *const d_x = z + values;
    float *const b = d_x + values, *const c = b + keys, *const dt = c + keys;
    at_.active_dt(0, s_.seq, dt);
    rows = at_.heads(at_.read(Id::x, 0, s_.seq, x), at_.read(Id::b, 0, s_.seq, b),
                     at_.read(Id::c, 0, s_.seq, c), dt, s_.seq);
    HeadGradient g;
    g.initial = at_.states(Id::initial_state), g.d_final = at_.states(Id::d_final_state);
    g.d_initial = at_.states(Id::grad_initial_state);
    g.d_out = s_.has(Id::z) ? gate_back(rows, dy, z, d_x, memory) : at_.read(Id::dy, 0, s_.seq, dy);
    g.d_value = at_.target(Id::grad_x, 0, d_x);
    g.d_rate = {dt + s_.seq, 1}, g.d_decay = {dt + 2 * s_.seq, 1};
    g.d_key = parts->d_b.data() + in_slice * keys, g.d_query = parts->d_c.data() + in_slice * keys;
    g.d_a = sums->a.data() + number;
    if (rows.d != nullptr) {
      const std::int64_t row = (p_.sequence * s_.heads + p_.head) * s_.headdim + p_.first;
      g.d_d = sums->d.data() + (s_.skip_of_head ? number : row);
    }
    heads_back(rows, g, 0, memory);
    at_.settle(Id::grad_x, 0, s_.seq, d_x);
    float* const d_dt = parts->d_dt.data() + in_slice * s_.seq;
    for (std::int64_t t = 0; t < s_.seq; ++t) d_dt[t] = g.d_rate.data[t] + g.d_decay.data[t];
  }

 private:
  // The gradient of y before the gate, in `dy`, and that of z. Walks forward for y; `y` and `states` are
  // memory for that.
  MatrixRows gate_back(HeadRows rows, float* dy, float* z, float* y, float* states) const {
    const std::int64_t wide = padded(p_.channels), state = padded(s_.state);
    std::fill_n(states, p_.channels * state, 0.0f);
    const float* const initial = at_.states(Id::initial_state);
    for (std::int64_t i = 0; initial != nullptr && i < p_.channels; ++i)
      std::copy_n(initial + i * s_.state, s_.state, states + i * state);
    rows.states = states, rows.from = states, rows.out = {y, wide};
    for (std::int64_t t = 0; t < s_.seq; t += rows.seq) {
      core::give_way();
      rows.seq = std::min(kWalkSteps, s_.seq - t);
      advance_heads(rows, 0, p_.channels);
      for (MatrixRows* const all : {&rows.value, &rows.key, &rows.query, &rows.rate, &rows.decay, &rows.out})
        all->data += rows.seq * all->step;
    }
    const MatrixRows given = at_.read(Id::dy, 0, s_.seq, dy), gates = at_.read(Id::z, 0, s_.seq, z);
    const MatrixRows d_z = at_.target(Id::grad_z, 0, z);
    for (std::int64_t t = 0; t < s_.seq; ++t) {
      for (std::int64_t i = 0; i < p_.channels; ++i) {
        const float d = given.data[t * given.step + i], gate = gates.data[t * gates.step + i];
        d_z.data[t * d_z.step + i] = d * y[t * wide + i] * formulas::silu_derivative<Math>(gate);
        dy[t * wide + i] = d * formulas::silu<Math>(gate);
      }
    }
    at_.settle(Id::grad_z, 0, s_.seq, z);
    return {dy, wide};
  }

  const SsdShape& s_;
  const Piece p_;
  const PieceRows at_;
};

// The sums over the pieces of sequences [first, first + count), in their order.
class Gather {
 public:
  Gather(const SsdCall& call, std::int64_t first, std::int64_t count, Parts* parts, Sums* sums)
      : call_(call), s_(call.shape), first_(first), count_(count), parts_(*parts), sums_(*sums) {}

  void run() {
    core::parallel_for(count_ * s_.heads, 4, [&](std::int64_t begin, std::int64_t end) {
      for (; begin < end; ++begin) add_dt(begin / s_.heads, begin % s_.heads);
    });
    core::parallel_for(count_ * s_.seq, 64, [&](std::int64_t begin, std::int64_t end) {
      AlignedBuffer row(padded(std::max(s_.heads, s_.state)));
      for (; begin < end; ++begin) {
        const std::int64_t sequence = begin / s_.seq, t = begin % s_.seq;
        write_dt(sequence, t, row.data());
        for (std::int64_t group = 0; group < s_.groups; ++group) {
          write_keys(Id::grad_b, parts_.d_b, sequence, t, group, row.data());
          write_keys(Id::grad_c, parts_.d_c, sequence, t, group, row.data());
        }
      }
    });
  }

 private:
  // Sums into the head's first piece, and on to dt before its activation.
  void add_dt(std::int64_t sequence, std::int64_t head) {
    const std::int64_t each = pieces_of_head(s_);
    float* const to = parts_.d_dt.data() + (sequence * parts_.pieces + head * each) * s_.seq;
    const PieceRows at(call_, {first_ + sequence, head, 0, 1});
    double bias = 0;
    for (std::int64_t t = 0; t < s_.seq; ++t) {
      float sum = to[t];
      for (std::int64_t piece = 1; piece < each; ++piece) sum += to[piece * s_.seq + t];
      to[t] = at.dt_back(t, sum);
      bias += to[t];
    }
    sums_.dt_bias[static_cast<std::size_t>((first_ + sequence) * s_.heads + head)] = bias;
  }
  void write_dt(std::int64_t sequence, std::int64_t t, float* row) const {
    if (!s_.has(Id::grad_dt)) return;
    const float* from = parts_.d_dt.data() + sequence * parts_.pieces * s_.seq + t;
    for (std::int64_t head = 0; head < s_.heads; ++head) row[head] = from[head * pieces_of_head(s_) * s_.seq];
    write(Id::grad_dt, ((first_ + sequence) * s_.seq + t) * s_.heads, s_.heads, row);
  }
  void write_keys(Id id, const AlignedBuffer& parts, std::int64_t sequence, std::int64_t t,
                  std::int64_t group, float* row) const {
    if (!s_.has(id)) return;
    const std::int64_t each = parts_.pieces / s_.groups, wide = padded(s_.state);
    const float* from = parts.data() + ((sequence * parts_.pieces + group * each) * s_.seq + t) * wide;
    std::copy_n(from, wide, row);
    for (std::int64_t piece = 1; piece < each; ++piece) {
      from += s_.seq * wide;
      for (std::int64_t n = 0; n < wide; ++n) row[n] += from[n];
    }
    write(id, (((first_ + sequence) * s_.seq + t) * s_.groups + group) * s_.state, s_.state, row);
  }
  void write(Id id, std::int64_t element, std::int64_t count, const float* row) const {
    const auto size = static_cast<std::int64_t>(core::dtype_size(s_.dtype));
    narrow_row(s_.dtype, row, count, static_cast<char*>(call_.operands[id]) + element * size);
  }

  const SsdCall& call_;
  const SsdShape& s_;
  const std::int64_t first_, count_;
  Parts& parts_;
  Sums& sums_;
};

// to[i]: the sum over rows of `from`, {rows, count, each}, and over the last axis.
template <class T>
void total(const T* from, std::int64_t rows, std::int64_t count, std::int64_t each, void* to) {
  if (to == nullptr) return;
  for (std::int64_t i = 0; i < count; ++i) {
    double sum = 0;
    for (std::int64_t row = 0; row < rows; ++row) {
      for (std::int64_t k = 0; k < each; ++k) sum += from[(row * count + i) * each + k];
    }
    static_cast<float*>(to)[i] = static_cast<float>(sum);
  }
}

}  // namespace

void ssd_scan_grad(const SsdCall& call) {
  const SsdShape& s = call.shape;
  const std::int64_t most =
      std::clamp<std::int64_t>(kMostParts / std::max<std::int64_t>(1, Parts::floats(s)), 1, s.batch);
  Sums sums(s);
  Parts parts(s, most);
  for (std::int64_t first = 0; first < s.batch; first += most) {
    const std::int64_t count = std::min(most, s.batch - first), before = first * parts.pieces;
    core::parallel_for(count * parts.pieces, 1, [&](std::int64_t begin, std::int64_t end) {
      for (; begin < end; ++begin) {
        PieceBack(call, piece_of(s, before + begin)).run(before + begin, begin, &parts, &sums);
      }
    });
    Gather(call, first, count, &parts, &sums).run();
  }
  const std::int64_t each = pieces_of_head(s);
  total(sums.a.data(), s.batch, s.heads, each, call.operands[Id::grad_a]);
  total(sums.d.data(), s.batch, s.skips(), s.skip_of_head ? each : 1, call.operands[Id::grad_d]);
  total(sums.dt_bias.data(), s.batch, s.heads, 1, call.operands[Id::grad_dt_bias]);
}

}  // namespace exphil::host
