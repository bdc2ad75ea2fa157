// scan_channels for every SIMD target, and the packing of its operands.
#include "host/recurrence/sequence.hpp"

#include <cmath>
#include <limits>

#include "core/work/background.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "host/recurrence/channels.cpp"
#include <hwy/foreach_target.h>
#include "host/recurrence/full_matrix-inl.hpp"
#include "host/simd/simd.hpp"

HWY_BEFORE_NAMESPACE();
namespace exphil {
namespace host {
namespace HWY_NAMESPACE {

using Body = void (*)(const Recurrence&);

// Of one block of channels, between two calls of give_way(): some 10 us.
inline constexpr std::int64_t kStepsPerOffer = 8 * kTile;

template <class W, class Scan>
Body diagonal_body(Discretization discretization) {
  switch (discretization) {
    case Discretization::zoh:
      return diagonal<Discretization::zoh, W, Scan>;
    case Discretization::foh:
      return diagonal<Discretization::foh, W, Scan>;
    case Discretization::bilinear:
      return diagonal<Discretization::bilinear, W, Scan>;
    case Discretization::highorder:
      return diagonal<Discretization::highorder, W, Scan>;
    case Discretization::poly:
      return diagonal<Discretization::poly, W, Scan>;
    case Discretization::rk4:
      return diagonal<Discretization::rk4, W, Scan>;
  }
  return nullptr;
}

Body choose_body(const ScanRule& rule, bool shared, bool within_range, bool decays_input, bool ladder) {
  constexpr auto kZoh = Discretization::zoh;
  if (ladder && decays_input) return diagonal<kZoh, F, PowersOf<DecayedScan>>;
  if (ladder) return shared ? diagonal<kZoh, F, PowersOf<SharedScan>> : diagonal<kZoh, F, PowersOf<AnyScan>>;
  if (decays_input) return diagonal<kZoh, F, DecayedScan>;
  if (rule.full_matrix) return full_matrix;
  if (rule.complex) {
    return shared ? diagonal_body<C, SharedScan>(rule.discretization)
                  : diagonal_body<C, AnyScan>(rule.discretization);
  }
  if (shared && rule.discretization == kZoh && within_range) return diagonal<kZoh, F, SharedScanInRange>;
  return shared ? diagonal_body<F, SharedScan>(rule.discretization)
                : diagonal_body<F, AnyScan>(rule.discretization);
}

// The block's h starts as initial_state or zeros; a resident state is updated in place. Null: each step has
// its own.
float* begin_state(const ScanRule& rule, const ScanSequence& sequence, const ScanTile& tile) {
  const std::int64_t row = rule.state * rule.parts();
  if (sequence.agents != nullptr) return nullptr;
  if (sequence.h_panels != nullptr) return sequence.h_panels + tile.channel * row;
  if (sequence.initial_state != nullptr) {
    pack_block(sequence.initial_state + tile.channel * row, tile.lanes, row, tile.h);
  } else {
    std::fill(tile.h, tile.h + row * kPanel, 0.0f);
  }
  return tile.h;
}

template <core::Dtype T>
void run_block(const ScanRule& rule, const ScanSequence& sequence, float* checkpoint, ScanTile& tile) {
  const std::int64_t row = rule.state * rule.parts();
  tile.d = padded_vector(sequence.d, tile, tile.d_copy);
  tile.bias = padded_vector(sequence.dt_bias, tile, tile.bias_copy);
  float* h = begin_state(rule, sequence, tile);
  Recurrence recurrence{};
  recurrence.rule = &rule;
  recurrence.tile = &tile;
  recurrence.a = sequence.a_panels + tile.channel / kPanel * rule.a_block();
  recurrence.h.h = h;
  const float a_bound = sequence.a_bounds == nullptr ? std::numeric_limits<float>::infinity()
                                                     : sequence.a_bounds[tile.channel / kPanel];
  const bool ladder = is_ladder(rule, recurrence.a, tile.lanes);
  recurrence.states_step = sequence.states_step;
  tile.keep_x = sequence.d != nullptr;
  for (tile.first = 0; tile.first < sequence.seq; tile.first += kTile) {
    if (tile.first % kStepsPerOffer == 0) core::give_way();
    tile.steps = std::min(kTile, sequence.seq - tile.first);
    if (checkpoint != nullptr) checkpoint = std::copy(h, h + rule.state_block(), checkpoint);
    prepare<T>(rule, sequence, a_bound, tile);
    if (rule.complex) {
      recurrence.b = project<core::Dtype::f32>(rule, sequence.b, tile, tile.b);
      recurrence.c = project<core::Dtype::f32>(rule, sequence.c, tile, tile.c);
    } else {
      recurrence.b = project<T>(rule, sequence.b, tile, tile.b);
      recurrence.c = project<T>(rule, sequence.c, tile, tile.c);
    }
    if (sequence.states != nullptr) {
      recurrence.states = sequence.states + tile.first * sequence.states_step + tile.channel * row;
    }
    if (h == nullptr) {
      recurrence.h.to = sequence.agents + tile.first, recurrence.h.from = sequence.agents_from + tile.first;
      recurrence.h.at = sequence.agent_at + tile.channel * row;
      recurrence.h.left = sequence.seq - tile.first;
    }
    const bool shared = recurrence.b.shared && recurrence.c.shared;
    choose_body(rule, shared, tile.within_range, sequence.decays_input, ladder)(recurrence);
    if (sequence.y != nullptr) finish<T>(sequence, tile);
  }
  if (h == tile.h && sequence.final_state != nullptr) {
    unpack_lanes(h, 0, tile.lanes, row, sequence.final_state + tile.channel * row);
  }
}

void run_pack_panels(const float* from, std::int64_t dim, std::int64_t row, float* to) {
  for (std::int64_t channel = 0; channel < dim; channel += kPanel) {
    pack_block(from + channel * row, std::min(kPanel, dim - channel), row, to + channel * row);
  }
}

void run_unpack_panels(const float* from, std::int64_t dim, std::int64_t row, float* to) {
  for (std::int64_t channel = 0; channel < dim; channel += kPanel) {
    unpack_lanes(from + channel * row, 0, std::min(kPanel, dim - channel), row, to + channel * row);
  }
}

void run_pack_a(const ScanRule& rule, const float* a, float* to) {
  run_pack_panels(a, rule.dim, rule.a_block() / kPanel, to);
  if (rule.complex || rule.full_matrix || rule.discretization != Discretization::zoh) return;
  const std::int64_t floats = panels(rule.dim) * rule.a_block();
  for (std::int64_t i = 0; i < floats; i += kLanes) {
    store(formulas::scale_a<Discretization::zoh, Math>(load(to + i)), to + i);
  }
}

void run_bounds_of(const ScanRule& rule, const float* a_panels, float* bounds) {
  for (std::int64_t block = 0; block < panels(rule.dim); ++block) {
    const float* a = a_panels + block * rule.a_block();
    F bound = fill(0.0);
    for (std::int64_t i = 0; i < rule.a_block(); i += kLanes)
      bound = larger_or_nan(bound, hn::Abs(load(a + i)));
    HWY_ALIGN float lanes[kPanel];
    store(bound, lanes);
    bounds[block] = 0.0f;
    for (std::int64_t lane = 0; lane < kLanes; ++lane) {
      if (!(lanes[lane] <= bounds[block]) && !std::isnan(bounds[block])) bounds[block] = lanes[lane];
    }
  }
}

const char* target_name() {
  return hwy::TargetName(HWY_TARGET);
}

void run_channels(const ScanRule& rule, const ScanSequence& sequence, std::int64_t begin, std::int64_t end,
                  float* scratch) {
  ScanTile tile{};
  carve(rule, scratch, &tile);
  for (std::int64_t block = begin; block < end; ++block) {
    tile.channel = block * kPanel;
    tile.lanes = std::min(kPanel, rule.dim - tile.channel);
    float* checkpoint = sequence.checkpoints;
    if (checkpoint != nullptr) checkpoint += (block - begin) * tiles(sequence.seq) * rule.state_block();
    switch (rule.dtype) {
      case core::Dtype::f16:
        run_block<core::Dtype::f16>(rule, sequence, checkpoint, tile);
        break;
      case core::Dtype::bf16:
        run_block<core::Dtype::bf16>(rule, sequence, checkpoint, tile);
        break;
      default:
        run_block<core::Dtype::f32>(rule, sequence, checkpoint, tile);
        break;
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace host
}  // namespace exphil
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace exphil::host {

HWY_EXPORT(run_channels);
HWY_EXPORT(run_pack_panels);
HWY_EXPORT(run_unpack_panels);
HWY_EXPORT(run_pack_a);
HWY_EXPORT(run_bounds_of);
HWY_EXPORT(target_name);

const char* simd_target() {
  return HWY_DYNAMIC_DISPATCH(target_name)();
}

void scan_channels(const ScanRule& rule, const ScanSequence& sequence, std::int64_t begin, std::int64_t end,
                   float* scratch) {
  HWY_DYNAMIC_DISPATCH(run_channels)(rule, sequence, begin, end, scratch);
}

void pack_panels(const float* from, std::int64_t dim, std::int64_t row, float* to) {
  HWY_DYNAMIC_DISPATCH(run_pack_panels)(from, dim, row, to);
}

void unpack_panels(const float* from, std::int64_t dim, std::int64_t row, float* to) {
  HWY_DYNAMIC_DISPATCH(run_unpack_panels)(from, dim, row, to);
}

void pack_a(const ScanRule& rule, const float* a, float* to) {
  HWY_DYNAMIC_DISPATCH(run_pack_a)(rule, a, to);
}

void bounds_of(const ScanRule& rule, const float* a_panels, float* bounds) {
  HWY_DYNAMIC_DISPATCH(run_bounds_of)(rule, a_panels, bounds);
}

}  // namespace exphil::host
#endif  // HWY_ONCE
