// Groups of sequences are walked frame by frame: the product of their states with r, then the cell. Each row
// of a product has the same bits in any group (host/simd/matmul.hpp).
#include "host/recurrent/dense.hpp"

#include <algorithm>
#include <optional>

#include "core/work/background.hpp"
#include "core/work/parallel.hpp"
#include "host/recurrent/cells.hpp"
#include "host/simd/convert.hpp"
#include "host/simd/linear_gradient.hpp"
#include "host/simd/rows.hpp"

namespace exphil::host {

namespace {

using core::RecurrentCall;
using core::RecurrentShape;
using Id = core::RecurrentOperand;

// Sequences whose product shares one reading of r: whatever the threads, no more than keep their rows in L2.
constexpr std::int64_t kMostTogether = 48;

struct Sizes {
  explicit Sizes(const RecurrentShape& s)
      : hidden(s.hidden), width(padded(s.hidden)), gates(s.gates()), sums(gates * width) {}
  std::int64_t hidden, width;  // units, and floats of a row of states
  std::int64_t gates, sums;    // floats of a row of sums: `width` for each gate
};

// r^T, {sums, hidden}: a row for each sum, zeros in those of padding.
AlignedBuffer transposed_weights(const RecurrentCall& call, const Sizes& n) {
  AlignedBuffer row(padded(n.gates * n.hidden)), weights(n.sums * n.hidden);
  const auto size = static_cast<std::int64_t>(core::dtype_size(call.shape.dtype));
  const auto* const r = static_cast<const char*>(call.input(Id::x1));
  for (std::int64_t from = 0; from < n.hidden; ++from) {
    widen_row(call.shape.dtype, r + from * n.gates * n.hidden * size, n.gates * n.hidden, row.data());
    for (std::int64_t gate = 0; gate < n.gates; ++gate) {
      for (std::int64_t unit = 0; unit < n.hidden; ++unit) {
        weights.data()[(gate * n.width + unit) * n.hidden + from] = row.data()[gate * n.hidden + unit];
      }
    }
  }
  return weights;
}

// The sequences [first, first + count) of a call, and where they are in its operands.
struct Group {
  const RecurrentCall& call;
  std::int64_t first, count;

  void* at(Id id, std::int64_t sequence, std::int64_t t, std::int64_t width) const {
    return element(id, ((first + sequence) * call.shape.seq + t) * width);
  }
  void* state(Id id, std::int64_t sequence) const {
    return element(id, (first + sequence) * call.shape.hidden);
  }
  void read_states(Id id, float* to, std::int64_t width) const {
    for (std::int64_t i = 0; i < count; ++i) {
      const void* const from = state(id, i);
      if (from != nullptr) widen_row(call.shape.dtype, from, call.shape.hidden, to + i * width);
    }
  }
  void write_states(Id id, const float* from, std::int64_t width) const {
    for (std::int64_t i = 0; i < count; ++i) {
      void* const to = state(id, i);
      if (to != nullptr) narrow_row(call.shape.dtype, from + i * width, call.shape.hidden, to);
    }
  }

 private:
  void* element(Id id, std::int64_t index) const {
    if (!call.shape.has(id) || call.operands[id] == nullptr) return nullptr;
    const auto size = static_cast<std::int64_t>(core::dtype_size(call.shape.dtype));
    return static_cast<char*>(call.operands[id]) + index * size;
  }
};

template <class Use>
void each_group(const RecurrentCall& call, const Use& use) {
  const std::int64_t batch = call.shape.batch, threads = core::threads();
  const std::int64_t together = std::min(kMostTogether, (batch + threads - 1) / threads);
  core::parallel_for((batch + together - 1) / together, 1, [&](std::int64_t begin, std::int64_t end) {
    for (; begin < end; ++begin) {
      use(Group{call, begin * together, std::min(together, batch - begin * together)});
    }
  });
}

// What the gradient needs of every frame: a row for each frame of each sequence.
struct Record {
  Record(const RecurrentShape& s, const Sizes& n)
      : h(s.batch * s.seq * n.width),
        c(formulas::states_of(s.cell) > 1 ? s.batch * s.seq * n.width : 0),
        sums(s.batch * s.seq * n.sums) {}
  AlignedBuffer h, c;  // before the frame
  AlignedBuffer sums;  // h_(t-1) r; on the way back their gradients
};

void walk(const Group& group, const Sizes& n, const PackedMatrix& r, Record* record) {
  const RecurrentShape& s = group.call.shape;
  AlignedBuffer h(group.count * n.width), c(group.count * n.width), own(group.count * n.sums);
  group.read_states(Id::h0, h.data(), n.width);
  group.read_states(Id::c0, c.data(), n.width);
  for (std::int64_t t = 0; t < s.seq; ++t) {
    core::give_way();
    MatrixRows sums{own.data(), n.sums};
    if (record != nullptr) {
      sums = {record->sums.data() + (group.first * s.seq + t) * n.sums, s.seq * n.sums};
      for (std::int64_t i = 0; i < group.count; ++i) {
        const std::int64_t row = ((group.first + i) * s.seq + t) * n.width;
        std::copy_n(h.data() + i * n.width, n.width, record->h.data() + row);
        if (record->c.floats() > 0) std::copy_n(c.data() + i * n.width, n.width, record->c.data() + row);
      }
    }
    multiply(r, h.data(), n.width, group.count, sums, Epilogue::store, 0, panels(n.sums));
    for (std::int64_t i = 0; i < group.count; ++i) {
      DenseStep step{s.cell, s.dtype, n.hidden};
      step.x = group.at(Id::x0, i, t, n.gates * n.hidden);
      step.sums = sums.data + i * sums.step;
      step.states[0] = h.data() + i * n.width, step.states[1] = c.data() + i * n.width;
      step.h = group.at(Id::h, i, t, n.hidden);
      dense_step(step);
    }
  }
  group.write_states(Id::final_h, h.data(), n.width);
  group.write_states(Id::final_c, c.data(), n.width);
}

void walk_back(const Group& group, const Sizes& n, const LinearGradient& r, Record& record) {
  const RecurrentShape& s = group.call.shape;
  AlignedBuffer d_h(group.count * n.width), d_c(group.count * n.width);
  group.read_states(Id::d_final_h, d_h.data(), n.width);
  group.read_states(Id::d_final_c, d_c.data(), n.width);
  for (std::int64_t t = s.seq; t-- > 0;) {
    core::give_way();
    const MatrixRows sums{record.sums.data() + (group.first * s.seq + t) * n.sums, s.seq * n.sums};
    for (std::int64_t i = 0; i < group.count; ++i) {
      const std::int64_t row = ((group.first + i) * s.seq + t) * n.width;
      DenseStepBack step{s.cell, s.dtype, n.hidden};
      step.x = group.at(Id::x0, i, t, n.gates * n.hidden);
      step.dh = group.at(Id::dh, i, t, n.hidden);
      step.sums = step.d_sums = sums.data + i * sums.step;
      step.before[0] = record.h.data() + row;
      if (record.c.floats() > 0) step.before[1] = record.c.data() + row;
      step.d_states[0] = d_h.data() + i * n.width, step.d_states[1] = d_c.data() + i * n.width;
      step.d_x = group.at(Id::grad_x0, i, t, n.gates * n.hidden);
      step.d_rh = group.at(Id::grad_rh, i, t, n.gates * n.hidden);
      dense_step_back(step);
    }
    r.add_back(sums, group.count, {d_h.data(), n.width});
  }
  group.write_states(Id::grad_h0, d_h.data(), n.width);
  group.write_states(Id::grad_c0, d_c.data(), n.width);
}

// The sum over all frames of h_(t-1)^T times the gradient of h_(t-1) r.
void write_weights(const RecurrentCall& call, const Sizes& n, LinearGradient& r, const Record& record) {
  const RecurrentShape& s = call.shape;
  const auto rows = [](const AlignedBuffer& from, std::int64_t step) {
    return MatrixRows{const_cast<float*>(from.data()), step};
  };
  r.add(rows(record.sums, n.sums), rows(record.h, n.width), s.batch * s.seq);
  AlignedBuffer turned(n.sums * n.hidden), row(padded(n.sums));
  r.write(turned.data(), nullptr);
  auto* const to = static_cast<char*>(call.operands[Id::grad_x1]);
  const auto size = static_cast<std::int64_t>(core::dtype_size(s.dtype));
  for (std::int64_t from = 0; from < n.hidden; ++from) {
    for (std::int64_t gate = 0; gate < n.gates; ++gate) {
      transpose(turned.data() + gate * n.width * n.hidden + from, n.hidden, n.hidden, 1,
                row.data() + gate * n.hidden, n.hidden);
    }
    narrow_row(s.dtype, row.data(), n.gates * n.hidden, to + from * n.gates * n.hidden * size);
  }
}

}  // namespace

void dense_scan(const RecurrentCall& call) {
  const Sizes n(call.shape);
  const AlignedBuffer weights = transposed_weights(call, n);
  AlignedBuffer packed(packed_floats(n.sums, n.hidden));
  const PackedMatrix r = pack_matrix(weights.data(), nullptr, n.sums, n.hidden, packed.data());
  each_group(call, [&](const Group& group) { walk(group, n, r, nullptr); });
}

void dense_scan_grad(const RecurrentCall& call) {
  const Sizes n(call.shape);
  const AlignedBuffer weights = transposed_weights(call, n);
  AlignedBuffer packed(packed_floats(n.sums, n.hidden));
  const PackedMatrix r = pack_matrix(weights.data(), nullptr, n.sums, n.hidden, packed.data());
  LinearGradient back(weights.data(), n.sums, n.hidden, false);
  Record record(call.shape, n);
  each_group(call, [&](const Group& group) {
    walk(group, n, r, &record);
    walk_back(group, n, back, record);
  });
  if (call.shape.has(Id::grad_x1)) write_weights(call, n, back, record);
}

}  // namespace exphil::host
