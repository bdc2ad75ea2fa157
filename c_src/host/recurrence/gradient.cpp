// gradient_part for every SIMD target.
#include "host/recurrence/gradient.hpp"

#include <algorithm>

#include "core/limits.hpp"
#include "core/work/background.hpp"
#include "host/recurrence/gradient_scratch.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "host/recurrence/gradient.cpp"
#include <hwy/foreach_target.h>
#include "host/recurrence/full_matrix_gradient-inl.hpp"
#include "host/recurrence/gradient_stages-inl.hpp"
#include "host/simd/simd.hpp"

HWY_BEFORE_NAMESPACE();
namespace exphil {
namespace host {
namespace HWY_NAMESPACE {

using GradientBody = void (*)(const GradientTile&);

template <class W>
GradientBody gradient_body(Discretization discretization) {
  switch (discretization) {
    case Discretization::zoh:
      return diagonal_gradient<Discretization::zoh, W>;
    case Discretization::foh:
      return diagonal_gradient<Discretization::foh, W>;
    case Discretization::bilinear:
      return diagonal_gradient<Discretization::bilinear, W>;
    case Discretization::highorder:
      return diagonal_gradient<Discretization::highorder, W>;
    case Discretization::poly:
      return diagonal_gradient<Discretization::poly, W>;
    case Discretization::rk4:
      return diagonal_gradient<Discretization::rk4, W>;
  }
  return nullptr;
}

void run_body(const ScanRule& rule, bool decays_input, const GradientTile& tile, float* history) {
  if (decays_input) return diagonal_gradient<Discretization::zoh, F, true>(tile);
  if (rule.full_matrix) return full_matrix_gradient(tile, history);
  (rule.complex ? gradient_body<C>(rule.discretization) : gradient_body<F>(rule.discretization))(tile);
}

// The state of one part in progress: blocks [first, last) of channels.
struct Part {
  std::int64_t number, first, last;
  PartScratch scratch;
};

// h before every tile, of the part's first block and the ones after it: the caller's, recomputed by the scan,
// or from the caller's states.
const float* find_checkpoints(const ScanRule& rule, const GradientSequence& sequence, const Part& part) {
  const std::int64_t row = rule.state * rule.parts(), count = tiles(sequence.scan.seq);
  if (sequence.checkpoints != nullptr) return sequence.checkpoints + part.first * count * rule.state_block();
  if (sequence.states == nullptr) {
    ScanSequence scan = sequence.scan;
    scan.checkpoints = part.scratch.checkpoints;
    scan_channels(rule, scan, part.first, part.last, part.scratch.tile);
    return part.scratch.checkpoints;
  }
  for (std::int64_t block = part.first; block < part.last; ++block) {
    const std::int64_t channel = block * kPanel, lanes = std::min(kPanel, rule.dim - channel);
    for (std::int64_t i = 0; i < count; ++i) {
      float* to = part.scratch.checkpoints + ((block - part.first) * count + i) * rule.state_block();
      if (i > 0) {
        const std::int64_t before = i * kTile - 1;
        pack_block(sequence.states + before * sequence.states_step + channel * row, lanes, row, to);
      } else if (sequence.scan.initial_state != nullptr) {
        pack_block(sequence.scan.initial_state + channel * row, lanes, row, to);
      } else {
        std::fill(to, to + rule.state_block(), 0.0f);
      }
    }
  }
  return part.scratch.checkpoints;
}

// Clears the sums of this part and loads the gradient of the final state.
void begin_part(const ScanRule& rule, const GradientSequence& sequence, const Part& part) {
  const std::int64_t row = rule.state * rule.parts();
  const auto clear = [&](float* panels, std::int64_t block_floats) {
    if (panels == nullptr) return;
    std::fill(panels + part.first * block_floats, panels + part.last * block_floats, 0.0f);
  };
  clear(sequence.da, rule.a_block());
  clear(sequence.dd, kPanel);
  clear(sequence.d_bias, kPanel);
  clear(sequence.b.panels, rule.state_block());
  clear(sequence.c.panels, rule.state_block());
  for (std::int64_t block = part.first; block < part.last; ++block) {
    float* g = part.scratch.g + (block - part.first) * rule.state_block();
    const std::int64_t channel = block * kPanel;
    if (sequence.d_final_state != nullptr) {
      pack_block(sequence.d_final_state + channel * row, std::min(kPanel, rule.dim - channel), row, g);
    } else {
      std::fill(g, g + rule.state_block(), 0.0f);
    }
  }
}

template <core::Dtype T>
void run_tile(const ScanRule& rule, const GradientSequence& sequence, const Part& part,
              const float* checkpoints, std::int64_t index) {
  const ScanSequence& scan = sequence.scan;
  const PartScratch& scratch = part.scratch;
  LaneSums b_sums{rule, sequence.b, scan.b.groups, part.number, index, tiles(scan.seq), scratch.db};
  LaneSums c_sums{rule, sequence.c, scan.c.groups, part.number, index, tiles(scan.seq), scratch.dc};
  ScanTile tile{};
  carve(rule, scratch.tile, &tile);
  tile.keep_x = true;
  tile.ahead = -kTile;
  tile.first = index * kTile;
  tile.steps = std::min(kTile, scan.seq - tile.first);
  for (std::int64_t block = part.first; block < part.last; ++block) {
    const std::int64_t own = block - part.first;
    tile.channel = block * kPanel;
    tile.lanes = std::min(kPanel, rule.dim - tile.channel);
    tile.d = padded_vector(scan.d, tile, tile.d_copy);
    tile.bias = padded_vector(scan.dt_bias, tile, tile.bias_copy);
    prepare<T>(rule, scan, 0.0f, tile);
    GradientTile work{};
    work.rule = &rule, work.tile = &tile;
    work.a = scan.a_panels + block * rule.a_block();
    if (rule.complex) {
      work.b = project<core::Dtype::f32>(rule, scan.b, tile, tile.b);
      work.c = project<core::Dtype::f32>(rule, scan.c, tile, tile.c);
    } else {
      work.b = project<T>(rule, scan.b, tile, tile.b);
      work.c = project<T>(rule, scan.c, tile, tile.c);
    }
    work.h = checkpoints + (own * tiles(scan.seq) + index) * rule.state_block();
    work.g = scratch.g + own * rule.state_block();
    work.dy = scratch.dy, work.ddt = scratch.ddt, work.ddt_x = scratch.ddt_x;
    work.y = scan.z.data != nullptr ? tile.y : nullptr;
    work.da = sequence.da + block * rule.a_block();
    work.db = b_sums.begin(tile.channel, tile.lanes), work.b_constant = scan.b.constant;
    work.dc = c_sums.begin(tile.channel, tile.lanes), work.c_constant = scan.c.constant;
    begin_gradient<T>(rule, sequence, tile, scratch);
    run_body(rule, scan.decays_input, work, scratch.history);
    finish_gradient<T>(rule, sequence, tile, scratch);
  }
  b_sums.flush();
  c_sums.flush();
}

template <core::Dtype T>
void run_part(const ScanRule& rule, const GradientSequence& sequence, const Part& part) {
  const float* const checkpoints = find_checkpoints(rule, sequence, part);
  begin_part(rule, sequence, part);
  for (std::int64_t index = tiles(sequence.scan.seq); index-- > 0;) {
    run_tile<T>(rule, sequence, part, checkpoints, index);
    core::give_way();
  }
  const std::int64_t row = rule.state * rule.parts();
  for (std::int64_t block = part.first; block < part.last && sequence.d_initial != nullptr; ++block) {
    const std::int64_t channel = block * kPanel;
    unpack_lanes(part.scratch.g + (block - part.first) * rule.state_block(), 0,
                 std::min(kPanel, rule.dim - channel), row, sequence.d_initial + channel * row);
  }
}

void run_gradient_part(const ScanRule& rule, const GradientSequence& sequence, std::int64_t number,
                       float* scratch) {
  Part part{number, number * kPartBlocks, std::min((number + 1) * kPartBlocks, panels(rule.dim)), {}};
  carve_part(rule, sequence.scan.seq, sequence.checkpoints != nullptr, scratch, &part.scratch);
  switch (rule.dtype) {
    case core::Dtype::f16:
      return run_part<core::Dtype::f16>(rule, sequence, part);
    case core::Dtype::bf16:
      return run_part<core::Dtype::bf16>(rule, sequence, part);
    default:
      return run_part<core::Dtype::f32>(rule, sequence, part);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace host
}  // namespace exphil
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace exphil::host {

HWY_EXPORT(run_gradient_part);

std::int64_t gradient_scratch_floats(const ScanRule& rule, std::int64_t seq, bool has_checkpoints) {
  PartScratch scratch;
  return carve_part(rule, seq, has_checkpoints, nullptr, &scratch);
}

void gradient_part(const ScanRule& rule, const GradientSequence& sequence, std::int64_t part,
                   float* scratch) {
  HWY_DYNAMIC_DISPATCH(run_gradient_part)(rule, sequence, part, scratch);
}

}  // namespace exphil::host
#endif  // HWY_ONCE
