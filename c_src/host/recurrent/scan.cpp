// The cells that are linear in their state; the others are dense.cpp's.
#include "host/recurrent/scan.hpp"

#include <algorithm>

#include "core/work/parallel.hpp"
#include "host/recurrent/cells.hpp"
#include "host/recurrent/dense.hpp"
#include "host/simd/thread_scratch.hpp"

namespace exphil::host {

namespace {

using core::RecurrentCall;
using core::RecurrentShape;
using Id = core::RecurrentOperand;

constexpr std::int64_t kGrainElements = 16384;  // of one piece of work: tens of microseconds
// Of a sweep's states, which its gradient keeps: 4 MB.
constexpr std::int64_t kMostStates = std::int64_t{1} << 20;

// Calls body(sequence, first channel, channels) over pieces of at most `most` channels.
template <class Body>
void each_piece(const RecurrentShape& s, std::int64_t most, const Body& body) {
  const std::int64_t wide = std::min(s.hidden, most), pieces = (s.hidden + wide - 1) / wide;
  const std::int64_t elements = std::max<std::int64_t>(1, wide * s.seq);
  core::parallel_for(s.batch * pieces, std::max<std::int64_t>(1, kGrainElements / elements),
                     [&](std::int64_t begin, std::int64_t end) {
                       for (; begin < end; ++begin) {
                         const std::int64_t first = begin % pieces * wide;
                         body(begin / pieces, first, std::min(wide, s.hidden - first));
                       }
                     });
}

// The place of a channel of a sequence in the operands, or null where the call has none.
class Places {
 public:
  Places(const RecurrentCall& call, std::int64_t sequence, std::int64_t channel)
      : call_(call), sequence_(sequence), channel_(channel) {}
  void* step(Id id) const { return element(id, sequence_ * call_.shape.seq * call_.shape.hidden + channel_); }
  void* state(Id id) const { return element(id, sequence_ * call_.shape.hidden + channel_); }

 private:
  void* element(Id id, std::int64_t index) const {
    if (!call_.shape.has(id) || call_.operands[id] == nullptr) return nullptr;
    const auto size = static_cast<std::int64_t>(core::dtype_size(call_.shape.dtype));
    return static_cast<char*>(call_.operands[id]) + index * size;
  }
  const RecurrentCall& call_;
  const std::int64_t sequence_, channel_;
};

LinearSweep sweep_of(const RecurrentShape& s, const Places& at, std::int64_t channels) {
  LinearSweep sweep;
  sweep.cell = s.cell, sweep.dtype = s.dtype;
  sweep.steps = s.seq, sweep.columns = channels, sweep.stride = s.hidden;
  for (int i = 0; i < s.row().count(); ++i) sweep.x[i] = at.step(core::behind(Id::x0, i));
  sweep.h0 = at.state(Id::h0);
  return sweep;
}

}  // namespace

void recurrent_scan(const RecurrentCall& call) {
  const RecurrentShape& s = call.shape;
  if (s.dense()) return dense_scan(call);
  each_piece(s, kSweepColumns, [&](std::int64_t sequence, std::int64_t channel, std::int64_t channels) {
    const Places at(call, sequence, channel);
    LinearSweep sweep = sweep_of(s, at, channels);
    sweep.h = at.step(Id::h), sweep.final_h = at.state(Id::final_h);
    sweep_linear(sweep);
  });
}

void recurrent_scan_grad(const RecurrentCall& call) {
  const RecurrentShape& s = call.shape;
  if (s.dense()) return dense_scan_grad(call);
  // Long sequences have fewer channels at once. That changes no bit: channels know nothing of each other.
  const std::int64_t most =
      std::clamp(kMostStates / std::max<std::int64_t>(1, s.seq) / kPanel * kPanel, kPanel, kSweepColumns);
  each_piece(s, most, [&](std::int64_t sequence, std::int64_t channel, std::int64_t channels) {
    const Places at(call, sequence, channel);
    AlignedBuffer large;
    float* const before = thread_scratch(Scratch::gradient, s.seq * padded(channels), &large);
    LinearSweepBack sweep;
    sweep.of = sweep_of(s, at, channels);
    const bool given = s.dtype == core::Dtype::f32;
    states_before(sweep.of, given ? static_cast<const float*>(at.step(Id::given_h)) : nullptr, before);
    sweep.before = before;
    sweep.dh = at.step(Id::dh), sweep.d_final = at.state(Id::d_final_h);
    for (int i = 0; i < s.row().count(); ++i) sweep.d_x[i] = at.step(core::behind(Id::grad_x0, i));
    sweep.d_h0 = at.state(Id::grad_h0);
    sweep_linear_back(sweep);
  });
}

}  // namespace exphil::host
