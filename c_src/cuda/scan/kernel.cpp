#include "cuda/scan/kernel.hpp"

#include <limits>
#include <numeric>

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

// The value of ELEMENT in the kernels.
int element_number(core::Dtype dtype) {
  return dtype == core::Dtype::f16 ? 1 : dtype == core::Dtype::bf16 ? 2 : 0;
}

}  // namespace

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
