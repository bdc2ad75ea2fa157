// The plan of kernels/scan/backward.cu: every gradient with a diagonal A.
#include <algorithm>
#include <utility>

#include "cuda/scan/backward.hpp"
#include "cuda/scan/occupancy.hpp"

namespace exphil::cuda {
namespace {

using core::ScanOperand;
using core::ScanShape;

// Two rows of segments in checkpoints and adjoints are 1/32 of all states. See narrow() for shorter ones.
constexpr int kSegment = kLongestSegment, kFewestSteps = 16;
// Lanes of a sequence that are worth the cost of shorter segments, and blocks of a sequence below which a
// block takes one tile of channels.
constexpr std::int64_t kFewLanes = 32768, kFewBlocks = 256;
// With four tiles instead of two 1x65536x1536x16 takes 2928 us instead of 2895 (H200).
constexpr int kWarps = 4, kMostTiles = 2;
constexpr int kLocalSteps = 32;  // of a segment that the first stage has in shared memory at a time

// Floats of Abar, gain and h of a piece that a lane keeps in registers; twice as many where it is wide.
constexpr int kPieceFloats = 64;
// Warps of a multiprocessor: 128 registers a lane, or 255 where it is wide. With 168 registers and
// 12 warps the gradient of 32x60x512x16 takes 54 us instead of 43 (H200).
constexpr int kMinWarps = 16, kMinWideWarps = 8;

struct Cut {
  int lanes = 1, per_lane = 1, channels = 1, warps = kWarps, tiles = 1, segment = kSegment, steps = 1;
  int min_blocks = 1;

  int columns() const { return 32 / lanes; }
  int tile_channels() const { return warps * columns() * channels; }
};

int floats_of(const ScanShape& p) {
  return p.complex ? 2 : 1;
}

std::int64_t segments_of(const ScanShape& p, int segment) {
  return std::max<std::int64_t>(1, (p.seq + segment - 1) / segment);
}

scan::BackwardLayout layout_of(const ScanShape& p, const Cut& cut, int staged) {
  return {cut.segment,
          cut.steps,
          staged,
          cut.tile_channels(),
          cut.lanes * cut.per_lane * floats_of(p),
          cut.channels * cut.per_lane * floats_of(p),
          cut.warps,
          p.has(ScanOperand::z)};
}

std::size_t shared_bytes(const ScanShape& p, const Cut& cut) {
  return static_cast<std::size_t>(layout_of(p, cut, cut.segment).bytes());
}

// Neighbouring channels that one access of x, dt, dy, z and their gradients takes: 4 or 1.
int access_width(const ScanShape& p, const Cut& cut) {
  const int four = 4 * static_cast<int>(core::dtype_size(p.dtype));
  bool aligned = span_of(p) % 4 == 0 && cut.tile_channels() % 4 == 0;
  for (const ScanOperand id : {ScanOperand::x, ScanOperand::dt, ScanOperand::z, ScanOperand::dy,
                               ScanOperand::grad_x, ScanOperand::grad_dt, ScanOperand::grad_z}) {
    aligned = aligned && (!p.has(id) || p.alignment[id] >= four);
  }
  return aligned ? 4 : 1;
}

// Whether a lane has more registers, because it has many states of several channels.
bool is_wide(const ScanShape& p, const Cut& cut) {
  return cut.channels > 1 && cut.channels * cut.per_lane * floats_of(p) > 4;
}

// Steps of a piece: a power of two, so that it divides every segment.
int piece_steps(const ScanShape& p, const Cut& cut) {
  const int kept = p.options.discretization == formulas::Discretization::zoh ? 2 : 3;
  const int own = cut.channels * cut.per_lane * floats_of(p);
  int steps = 8;
  while (steps > 1 && steps * own * kept > kPieceFloats * (is_wide(p, cut) ? 2 : 1)) steps /= 2;
  return steps;
}

// A lane's states of one channel, at most, as far as a warp has lanes; and the lanes of a column for them.
void spread(const ScanShape& p, int most, Cut* cut) {
  cut->lanes = 1;
  while (cut->lanes < 32 && cut->lanes * most < p.state) cut->lanes *= 2;
  cut->per_lane = next_power_of_two((p.state + cut->lanes - 1) / cut->lanes);
}

// What a lane has. Two channels halve the work of the sums over channels: with as many states of each where
// enough lanes are left, elsewhere with half as many.
void share_out(const ScanShape& p, const BackwardTuning& tuning, Cut* cut) {
  const int most = 4 / floats_of(p);
  spread(p, tuning.per_lane > 0 ? tuning.per_lane : most, cut);
  const std::int64_t lanes = p.dim / 2 * cut->lanes * segments_of(p, kSegment);
  const bool pairs = span_of(p) % 2 == 0, few_states = cut->per_lane * floats_of(p) <= 4;
  const bool wide = p.seq > kSegment && few_states && pairs && lanes >= kFewLanes;
  const bool halves = pairs && !p.complex && p.state > 8 && p.state <= 64;
  cut->channels = tuning.channels > 0 ? tuning.channels : wide || halves ? 2 : 1;
  if (tuning.channels == 0 && tuning.per_lane == 0 && halves && !wide) spread(p, most / 2, cut);
}

// Shorter segments where a sequence would have few lanes at work. One segment needs no first two stages.
void narrow(const ScanShape& p, Cut* cut) {
  const auto lanes = [&] { return p.dim / cut->channels * cut->lanes * segments_of(p, cut->segment); };
  while (p.seq > kSegment && cut->segment > kFewestSteps && lanes() < kFewLanes) cut->segment /= 2;
}

// More tiles of channels to a block, so that fewer parts of sums over channels are left.
void widen(const ScanShape& p, Cut* cut) {
  const auto blocks = [&](int tiles) {
    return cut_channels(p, cut->tile_channels() * tiles).blocks() * segments_of(p, cut->segment);
  };
  const std::int64_t span = span_of(p);
  while (cut->tiles < kMostTiles && cut->tiles * cut->tile_channels() < span &&
         blocks(2 * cut->tiles) >= kFewBlocks) {
    cut->tiles *= 2;
  }
}

void make_room(const ScanShape& p, const DeviceProperties& device, Cut* cut) {
  while (shared_bytes(p, *cut) > static_cast<std::size_t>(device.max_shared_per_block)) {
    if (cut->segment > kSegment / 2) {
      cut->segment /= 2;
    } else if (cut->warps > 1) {
      cut->warps /= 2;
    } else if (cut->segment > std::max(8, cut->steps)) {
      cut->segment /= 2;
    } else if (cut->steps > 1) {
      cut->steps /= 2;
    } else {
      fail_does_not_fit(p, device);
    }
  }
}

Cut cut_for(const ScanShape& p, const DeviceProperties& device, const BackwardTuning& tuning) {
  Cut cut;
  share_out(p, tuning, &cut);
  cut.steps = tuning.steps > 0 ? tuning.steps : piece_steps(p, cut);
  if (tuning.segment > 0) {
    cut.segment = tuning.segment;
  } else {
    narrow(p, &cut);
  }
  cut.warps = tuning.warps > 0 ? tuning.warps : kWarps;
  while (tuning.warps == 0 && cut.warps > 1 && cut.tile_channels() / 2 >= span_of(p)) cut.warps /= 2;
  make_room(p, device, &cut);
  if (tuning.tiles > 0) {
    cut.tiles = tuning.tiles;
  } else {
    widen(p, &cut);
  }
  cut.min_blocks = tuning.min_blocks > 0
                       ? tuning.min_blocks
                       : std::max(1, (is_wide(p, cut) ? kMinWideWarps : kMinWarps) / cut.warps);
  return cut;
}

// Segments that the carry loads while it uses as many before them. 16 instead of 8 take fewer waits but more
// registers and a longer beginning: 1x65536x1536x16 2904 instead of 2921 us, 1x1024x256x16 23.4 instead of
// 22.9, 8x2048x1536x16 757 instead of 756 (H200; 1024 segments, 32 and 32).
constexpr std::int64_t kManySegments = 128;
int carry_ahead(std::int64_t segments) {
  return segments > kManySegments ? 16 : 8;
}

// How a stage copies its streams to shared memory: steps that are there at a time, rows that a thread loads
// before it uses the first, and blocks of a multiprocessor.
struct Staging {
  int steps, at_once, min_blocks;
};
// With few steps at a time more blocks fit a multiprocessor: for 8x2048x1536x16 the gradient takes 753 us
// instead of 796 with whole segments (H200). A narrow lane gains from four more warps, a wide one from longer
// loads.
Staging local_staging(const ScanShape& p, const Cut& cut) {
  const bool wide = is_wide(p, cut);
  return {std::min(cut.segment, kLocalSteps), wide ? 4 : 2, std::max(1, (wide ? 16 : 20) / cut.warps)};
}
Staging last_staging(const Cut& cut) {
  return {cut.segment, cut.min_blocks * cut.warps <= kMinWideWarps ? 8 : 4, cut.min_blocks};
}

KernelSpec spec_of(const ScanShape& p, const Cut& cut, const Staging& staging, const char* file,
                   const char* entry) {
  KernelSpec spec{
      file,
      entry,
      {define("COMPLEX", p.complex), define("LANES", cut.lanes), define("PER_LANE", cut.per_lane),
       define("CHANNELS", cut.channels), define("WARPS", cut.warps), define("CHANNEL_TILES", cut.tiles),
       define("SEGMENT", cut.segment), define("STAGED", staging.steps), define("AT_ONCE", staging.at_once),
       define("STEPS", cut.steps), define("MIN_BLOCKS", staging.min_blocks),
       define("WIDTH", access_width(p, cut)), define("VECTOR_ROWS", has_vector_rows(p)),
       define("HAS_STATES", p.has(ScanOperand::given_states)), define("B_CONSTANT", p.b_layout.constant),
       define("C_CONSTANT", p.c_layout.constant)}};
  add_scan_defines(p, &spec.defines);
  return spec;
}

bool takes(const ScanShape& p, const DeviceProperties&) {
  return !p.full_matrix;
}

BackwardPlan plan(const ScanShape& p, const DeviceProperties& device, const BackwardTuning& tuning) {
  constexpr std::int64_t kMostRows = 65535;  // of a grid
  const Cut cut = cut_for(p, device, tuning);
  BackwardPlan plan;
  plan.cut = cut_channels(p, cut.tile_channels() * cut.tiles);
  plan.segments = segments_of(p, cut.segment);
  const Dim3 grid{gradient_blocks(p.batch * plan.cut.blocks()),
                  static_cast<unsigned>(std::min(plan.segments, kMostRows)), 1};
  const Dim3 block{32, static_cast<unsigned>(cut.warps), 1};
  const std::size_t shared = shared_bytes(p, cut);
  if (plan.segments > 1) {
    const Staging staging = local_staging(p, cut);
    plan.stages.push_back(
        {spec_of(p, cut, staging, "scan/backward_local.cu", "selective_scan_backward_local"), grid, block,
         static_cast<std::size_t>(layout_of(p, cut, staging.steps).staged_bytes())});
    BackwardStage carry{
        {"scan/backward_carry.cu",
         "selective_scan_backward_carry",
         {define("COMPLEX", p.complex), define("STATE", p.state), define("AHEAD", carry_ahead(plan.segments)),
          define("DISCRETIZATION", static_cast<int>(p.options.discretization))}},
        {gradient_blocks((p.batch * p.dim * p.state + 127) / 128), 2, 1},
        {128, 1, 1},
        0};
    plan.stages.push_back(carry);
    carry.spec.entry = "selective_scan_backward_totals";
    plan.totals = std::move(carry);
  }
  plan.stages.push_back({spec_of(p, cut, last_staging(cut), "scan/backward.cu", "selective_scan_backward"),
                         grid, block, shared});
  return plan;
}

}  // namespace

const BackwardKernel kDiagonalBackward = {"diagonal", takes, plan};

}  // namespace exphil::cuda
