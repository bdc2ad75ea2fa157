// What scan/chunked.cu does with kPassStates states of a tile: the scan of each lane's chunk, the combination
// over the lanes, and the recurrence from the state before the chunk. Its steps 1 to 3.
#pragma once

#include "kernels/scan/chunked_states.cuh"

namespace exphil {
namespace scan_chunked {

// Whether the state carried into a tile is added after its lanes are combined. The dependency from tile to
// tile is then only one multiplication and addition, at the price of one more product over the lanes. It is
// faster for few channels (1x1024x256x16 on an H200: 12.8 instead of 13.8 us) and 4% slower where many fill
// the device (8x2048x1536x16).
constexpr bool kLate = kChunks > 4;

// One state's scan of the chunk.
struct Scanned {
  State decay[kSteps], input[kSteps];
  State total, end, before;
};

// Where A of all channels of a warp is -1, -2, ..., -STATE (as S4D-Real begins and Edifice keeps it), the
// decays of a step are the powers of e^-dt': each state takes one product instead of an exponential. Which
// channels share a warp depends on shapes alone, and so do the bits.
constexpr bool kHasPowers = Rule::kDecaysArePowers;
EXPHIL_DEVICE bool is_ladder(const Place& s, const Rule::Constants* constants) {
  bool ladder = kHasPowers;
#pragma unroll 1
  for (int n = 0; kHasPowers && n < STATE; ++n) {
    const int slot = n / kPassStates * kChannels + s.across;
    ladder = ladder && Rule::is_rung(constants[slot * kPassStates + n % kPassStates], n);
  }
  return kHasPowers && __all_sync(0xffffffffu, ladder || !s.live);
}
// Replaces dt' by e^-dt', and sets the decays that the first of the states is multiplied on.
EXPHIL_DEVICE void begin_powers(float (&dt)[kSteps], Scanned (&x)[kPassStates]) {
#pragma unroll
  for (int i = 0; i < kSteps; ++i) {
    dt[i] = device::exp2_unbiased(__fmul_rn(dt[i], -device::kLog2E));
    x[kPassStates - 1].decay[i] = Rule::one();
  }
}

// Step 1. Powers: dt is e^-dt', and x has the decays of the states before.
template <bool Powers>
EXPHIL_DEVICE void scan_chunk(const Rule::Constants (&a)[kPassStates], const float (&dt)[kSteps],
                              const float (&v)[kSteps], float sum_dt, const float* rows,
                              const State (&constant)[kPassStates], Scanned (&x)[kPassStates]) {
  State b[kAhead][kPassStates];
#pragma unroll
  for (int i = 0; i < kSteps; ++i) {
    const Rule::Step common = Rule::step(dt[i], v[i]);
    if (!B_CONSTANT && i % kAhead == 0) load_rows(rows + i * kUnit, b);
    State decay{};
    if constexpr (Powers) decay = x[kPassStates - 1].decay[i];
#pragma unroll
    for (int u = 0; u < kPassStates; ++u) {
      if constexpr (Powers) {
        decay = Rule::next_power(decay, dt[i]);
      } else {
        decay = Rule::decay(a[u], common);
      }
      const State input = Rule::input(a[u], common, decay, B_CONSTANT ? constant[u] : b[i % kAhead][u]);
      x[u].decay[i] = decay, x[u].input[i] = input;
      x[u].end = i == 0 ? Rule::start(decay, input) : Rule::advance(x[u].end, decay, input);
      if constexpr (!Rule::kDecayFromSum) {
        x[u].total = Rule::multiply_decay(i == 0 ? Rule::one() : x[u].total, decay);
      }
    }
  }
#pragma unroll
  for (int u = 0; u < kPassStates; ++u)
    if constexpr (Rule::kDecayFromSum) x[u].total = Rule::total_decay(a[u], sum_dt);
}

// Step 2, over the lanes of a channel: `end` becomes the state after each lane's chunk, and with kLate
// `total` the decay up to there.
template <int BY>
EXPHIL_DEVICE void combine(Scanned (&x)[kPassStates]) {
  if constexpr (BY < kChunks) {
    constexpr bool kTotals = kLate || 2 * BY < kChunks;
    State earlier[kPassStates], earlier_total[kPassStates];
    bool exists = false;
#pragma unroll
    for (int u = 0; u < kPassStates; ++u) {
      earlier[u] = shuffle_up<BY * kChannels>(x[u].end, &exists);
      if constexpr (kTotals) earlier_total[u] = shuffle_up<BY * kChannels>(x[u].total, &exists);
    }
#pragma unroll
    for (int u = 0; u < kPassStates; ++u) {
      if (exists) x[u].end = Rule::carry(earlier[u], x[u].total, x[u].end);
      if constexpr (kTotals) {
        if (exists) x[u].total = Rule::multiply_totals(earlier_total[u], x[u].total);
      }
    }
    combine<2 * BY>(x);
  }
}
EXPHIL_DEVICE void combine(const Place& s, const Carried* from, Address to, unsigned tile,
                           Scanned (&x)[kPassStates]) {
  State h[kPassStates];
  if constexpr (kLate) combine<1>(x);
  receive(from, tile, h);
#pragma unroll
  for (int u = 0; u < kPassStates; ++u)
    if (kLate || kChunks == 1 || s.chunk == 0) x[u].end = Rule::carry(h[u], x[u].total, x[u].end);
  if constexpr (!kLate) combine<1>(x);
  if (kChunks == 1 || s.chunk == kChunks - 1) {
    State after[kPassStates];
#pragma unroll
    for (int u = 0; u < kPassStates; ++u) after[u] = x[u].end;
    send(to, after, tile + 1);
  }
#pragma unroll
  for (int u = 0; u < kPassStates; ++u) {
    bool exists = false;
    State up{};
    if constexpr (kChunks > 1) up = shuffle_up<kChannels>(x[u].end, &exists);
    x[u].before = exists ? up : h[u];
  }
}

// Step 3. n: the first of the states, for the output of states.
EXPHIL_DEVICE void read_out(const Arguments& p, const Place& s, int n, int steps, const float* rows,
                            const State (&constant)[kPassStates], const Scanned (&x)[kPassStates],
                            float (&y)[kSteps]) {
  State h[kPassStates];
#pragma unroll
  for (int u = 0; u < kPassStates; ++u) h[u] = x[u].before;
#if WRITE_STATES
  const long long step = row_step(s, p.dim, 1) * static_cast<long long>(STATE * kFloats);
  float* states = p.states + (s.at / static_cast<int>(sizeof(Storage)) * STATE + n) * kFloats;
#endif
  State c[kAhead][kPassStates];
#pragma unroll
  for (int i = 0; i < kSteps; ++i) {
    if (!C_CONSTANT && i % kAhead == 0) load_rows(rows + i * kUnit, c);
#pragma unroll
    for (int u = 0; u < kPassStates; ++u) {
      h[u] = Rule::advance(h[u], x[u].decay[i], x[u].input[i]);
      y[i] = Rule::read_out(h[u], C_CONSTANT ? constant[u] : c[i % kAhead][u], y[i]);
#if WRITE_STATES
      if (i < steps && n + u < STATE) store_state(states + i * step + u * kFloats, h[u]);
#endif
    }
  }
}

}  // namespace scan_chunked
}  // namespace exphil
