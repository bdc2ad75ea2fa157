#include "cuda/scan/kernel.hpp"

#include <cstddef>
#include <cstring>
#include <limits>
#include <numeric>

#include "core/error.hpp"

namespace exphil::cuda {
namespace {

using core::ScanAlgorithm;
using core::ScanOperand;
using core::ScanShape;

// For up to this many steps the warps of a batch-1 scan finish before a second pass over time would.
constexpr std::int64_t kSequentialSteps = 64;
// With this many channels a single sequence fills every device.
constexpr std::int64_t kSequentialChannels = 16384;

// scan/chunked.cu uses int for steps, rounded up to full rounds of its blocks, and for bytes across the rows
// that a block copies at a time (below 1024).
constexpr std::int64_t kMostChunkedSteps = (std::int64_t{1} << 31) - (std::int64_t{1} << 20);
constexpr std::int64_t kMostRowBytes = std::int64_t{1} << 21;

std::int64_t element_bytes(const ScanShape& p) {
  return static_cast<std::int64_t>(core::dtype_size(p.dtype));
}

// Whether scan/chunked.cu can represent the scan's steps and the bytes of its rows.
bool fits_ints(const ScanShape& p) {
  const auto row_fits = [&p](const core::ProjectionLayout& layout) {
    const std::int64_t size = p.complex ? 8 : element_bytes(p);
    return layout.constant || layout.groups * p.state * size < kMostRowBytes;
  };
  return p.seq < kMostChunkedSteps && p.dim * element_bytes(p) < kMostRowBytes && row_fits(p.b_layout) &&
         row_fits(p.c_layout);
}

// Where scan::Arguments keeps an operand's address; kNowhere for those that it has not.
constexpr std::size_t kNowhere = sizeof(scan::Arguments);
core::PerOperand<ScanOperand, std::size_t> argument_offsets() {
  core::PerOperand<ScanOperand, std::size_t> offsets;
  for (const ScanOperand id : core::all_operands<ScanOperand>()) offsets[id] = kNowhere;
  offsets[ScanOperand::x] = offsetof(scan::Arguments, x);
  offsets[ScanOperand::dt] = offsetof(scan::Arguments, dt);
  offsets[ScanOperand::a] = offsetof(scan::Arguments, a);
  offsets[ScanOperand::b] = offsetof(scan::Arguments, b);
  offsets[ScanOperand::c] = offsetof(scan::Arguments, c);
  offsets[ScanOperand::d] = offsetof(scan::Arguments, d);
  offsets[ScanOperand::z] = offsetof(scan::Arguments, z);
  offsets[ScanOperand::dt_bias] = offsetof(scan::Arguments, dt_bias);
  offsets[ScanOperand::initial_state] = offsetof(scan::Arguments, initial_state);
  offsets[ScanOperand::y] = offsetof(scan::Arguments, y);
  offsets[ScanOperand::y_reverse] = offsetof(scan::Arguments, y_reverse);
  offsets[ScanOperand::final_state] = offsetof(scan::Arguments, final_state);
  offsets[ScanOperand::states] = offsetof(scan::Arguments, states);
  return offsets;
}

}  // namespace

scan::Arguments scan_arguments(const ScanShape& p, const core::ScanOperands<CUdeviceptr>& on_device,
                               const ChannelCut& cut) {
  static_assert(sizeof(CUdeviceptr) == sizeof(void*));
  static const core::PerOperand<ScanOperand, std::size_t> offsets = argument_offsets();
  const std::int64_t floats = p.complex ? 2 : 1;
  scan::Arguments a{};
  for (const ScanOperand id : core::all_operands<ScanOperand>()) {
    if (!p.has(id) || offsets[id] == kNowhere) continue;
    std::memcpy(reinterpret_cast<char*>(&a) + offsets[id], &on_device[id], sizeof(void*));
  }
  a.seq = p.seq, a.dim = p.dim;
  a.b_step = p.b_layout.groups * p.state * floats;
  a.c_step = p.c_layout.groups * p.state * floats;
  a.b_group_channels = p.dim / p.b_layout.groups;
  a.c_group_channels = p.dim / p.c_layout.groups;
  a.span_channels = cut.span_channels;
  a.blocks_per_span = static_cast<int>(cut.blocks_per_span);
  a.blocks_per_batch = static_cast<int>(cut.blocks());
  a.reverse = p.options.direction == core::Direction::reverse;
  a.dt_min = p.options.dt_min, a.dt_max = p.options.dt_max;
  return a;
}

void require_addresses(const ScanShape& p, const core::ScanOperands<CUdeviceptr>& on_device) {
  const auto table = core::describe_operands(p);
  for (const ScanOperand id : core::all_operands<ScanOperand>()) {
    const core::Operand& operand = table[id];
    if (!operand.present || operand.bytes() == 0) continue;
    if (on_device[id] == 0 || core::alignment_of(on_device[id]) < p.alignment[id]) {
      core::fail(core::ErrorKind::invalid_argument, operand.name, operand.name,
                 " must be at a device address that is a multiple of ", static_cast<int>(p.alignment[id]),
                 "; got ", on_device[id]);
    }
  }
}

int element_number(core::Dtype dtype) {
  return dtype == core::Dtype::f16 ? 1 : dtype == core::Dtype::bf16 ? 2 : 0;
}

void add_scan_defines(const ScanShape& p, std::vector<std::string>* defines) {
  const core::ScanOptions& o = p.options;
  const float infinity = std::numeric_limits<float>::infinity();
  for (const std::string& each :
       {define("STATE", p.state), define("ELEMENT", element_number(p.dtype)),
        define("DISCRETIZATION", static_cast<int>(o.discretization)), define("SOFTPLUS", o.dt_softplus),
        define("CLIP", o.dt_min != -infinity || o.dt_max != infinity), define("HAS_D", p.has(ScanOperand::d)),
        define("HAS_Z", p.has(ScanOperand::z)), define("WRITE_STATES", p.has(ScanOperand::states))}) {
    defines->push_back(each);
  }
}

bool has_vector_rows(const ScanShape& p) {
  const int piece = !p.complex && p.dtype != core::Dtype::f32 ? 8 : 16;
  const bool b_aligned = p.b_layout.constant || p.alignment[ScanOperand::b] >= piece;
  const bool c_aligned = p.c_layout.constant || p.alignment[ScanOperand::c] >= piece;
  return p.state * (p.complex ? 2 : 1) % 4 == 0 && b_aligned && c_aligned;
}

std::int64_t span_of(const ScanShape& p) {
  const std::int64_t b_channels = p.b_layout.constant ? p.dim : p.dim / p.b_layout.groups;
  const std::int64_t c_channels = p.c_layout.constant ? p.dim : p.dim / p.c_layout.groups;
  return std::gcd(b_channels, c_channels);
}

ChannelCut cut_channels(const ScanShape& p, std::int64_t per_block) {
  const std::int64_t span = span_of(p);
  return {span, p.dim / span, (span + per_block - 1) / per_block};
}

int copy_width(const ScanShape& p, std::int64_t block_channels) {
  const std::int64_t size = element_bytes(p), span = span_of(p);
  std::int64_t width = 16 / size;
  const auto misplaced = [&](ScanOperand id) { return p.has(id) && p.alignment[id] < width * size; };
  while (width > 1 && (span % width != 0 || block_channels % width != 0 || misplaced(ScanOperand::x) ||
                       misplaced(ScanOperand::dt) || misplaced(ScanOperand::z))) {
    width /= 2;
  }
  return static_cast<int>(width);
}

int directions_of(const ScanShape& p) {
  return p.options.direction == core::Direction::both ? 2 : 1;
}

bool scans_sequentially(const ScanShape& p) {
  // Overrides the caller's choice: a sequential scan of such a shape is slow, a chunked one would be wrong.
  if (!fits_ints(p)) return true;
  if (p.options.algorithm != ScanAlgorithm::automatic) {
    return p.options.algorithm == ScanAlgorithm::sequential;
  }
  return p.seq <= kSequentialSteps || p.dim >= kSequentialChannels;
}

}  // namespace exphil::cuda
