#include "cuda/policy/gradient_memory.hpp"

#include <algorithm>
#include <utility>

#include "core/error.hpp"
#include "core/policy/heads.hpp"
#include "cuda/device/places.hpp"
#include "cuda/scan/backward.hpp"

namespace exphil::cuda {

using core::PolicyConfig;

namespace {

// Sizes of the parts of a stage: into() rounds each up.
class PartFloats {
 public:
  void add(std::int64_t parts, std::int64_t count) { floats_ += PartialSums::padded(parts * count); }
  void add_linear(std::int64_t parts, std::int64_t outs, std::int64_t depth) {
    add(parts, outs * depth);
    add(parts, outs);
  }
  std::int64_t floats() const { return floats_; }

 private:
  std::int64_t floats_ = 0;
};

// The most that the sums of one stage take: those of the heads, of a layer, of the input.
std::int64_t most_part_floats(const PolicyConfig& c, const GradientShape& p) {
  const std::int64_t parts = parts_of_rows(p.rows()), blocks = norm_blocks(p.rows());
  PartFloats head, layer, input;
  head.add_linear(parts, p.head_width, c.d_model);
  head.add_linear(parts, c.d_output, std::max(p.head_width, c.d_model));
  for (std::int64_t i = 0; i < 2; ++i) head.add(blocks, c.d_model), layer.add(blocks, c.d_model);
  // The heads' second layers have a part of the row each, rounded up.
  for (std::int64_t i = 0; i < c.d_output; ++i) head.add(1, 1), head.add(1, 1);
  for (std::int64_t i = 0; i < 2; ++i) {
    layer.add_linear(parts, c.d_inner, c.d_model);
    layer.add_linear(parts, c.d_state, c.d_inner);
  }
  layer.add_linear(parts, c.dt_rank, c.d_inner);
  layer.add_linear(parts, c.d_inner, c.dt_rank);
  layer.add_linear(parts, c.d_model, c.d_inner);
  layer.add(p.sequences * convolve_segments(p.seq), c.d_inner * c.d_conv);
  layer.add(p.sequences * convolve_segments(p.seq), c.d_inner);
  layer.add(p.sequences, c.d_inner * c.d_state);
  layer.add(p.sequences, c.d_inner);
  if (!is_selective_scan(c.spec, p.decays_input)) {
    const std::int64_t tiles = scan_tiles(c.d_inner, c.d_state);
    for (std::int64_t i = 0; i < 2; ++i) layer.add(tiles, p.rows() * c.d_state);
  }
  input.add_linear(parts, c.d_model, c.d_input);
  return std::max({head.floats(), layer.floats(), input.floats()});
}

// Bytes of the scan's own memory.
std::size_t scan_bytes(Context& context, const PolicyConfig& c, const GradientShape& p) {
  if (is_selective_scan(c.spec, p.decays_input)) {
    return scan_gradient_scratch(layer_scan(c, p, true, true), context.properties());
  }
  const std::int64_t tiles = scan_tiles(c.d_inner, c.d_state);
  const std::int64_t segments = (p.seq + policy::kScanSegment - 1) / policy::kScanSegment;
  return static_cast<std::size_t>(p.sequences * tiles * (segments + policy::kScanSegment) *
                                  policy::kScanThreads) *
         sizeof(float);
}

// Gives matrices their places, and their addresses once there is memory.
class Plan {
 public:
  void take(Matrix& matrix, std::int64_t rows, std::int64_t columns) {
    matrix = Matrix(nullptr, rows, columns);
    taken_.emplace_back(&matrix.data, bytes(rows, columns));
  }
  void take(float*& pointer, std::int64_t floats) { taken_.emplace_back(&pointer, bytes(floats, 1)); }
  std::size_t take_bytes(std::size_t count) { return places_.take(count); }
  std::size_t bytes() const { return places_.bytes(); }
  void set(CUdeviceptr base) {
    for (const auto& [pointer, place] : taken_) *pointer = as_pointer<float>(base + place);
  }

 private:
  std::size_t bytes(std::int64_t rows, std::int64_t columns) {
    const std::int64_t floats = core::checked_multiply(rows, columns, "frames");
    return places_.take(static_cast<std::size_t>(core::checked_multiply(floats, 4, "frames")));
  }
  Places places_;
  std::vector<std::pair<float**, std::size_t>> taken_;
};

void take_layer(Plan& plan, GradientLayer& l, const PolicyConfig& c, const GradientShape& p) {
  const std::int64_t rows = p.rows();
  for (Matrix* m : {&l.in, &l.normed}) plan.take(*m, rows, c.d_model);
  for (Matrix* m : {&l.x, &l.s, &l.z, &l.gated, &l.dt}) plan.take(*m, rows, c.d_inner);
  plan.take(l.low, rows, c.dt_rank);
  for (Matrix* m : {&l.b, &l.c}) plan.take(*m, rows, c.d_state);
  if (!is_selective_scan(c.spec, p.decays_input)) {
    plan.take(l.active_dt, rows, c.d_inner);
    plan.take(l.mean_dt, rows, 1);
  }
}

// The states of all layers follow each other, so that an upload and a download of them are one copy.
void take_states(Plan& plan, std::vector<GradientLayer>& layers, const PolicyConfig& c,
                 const GradientShape& p) {
  const std::int64_t ssm = p.sequences * c.d_inner * c.d_state;
  const std::int64_t conv = p.sequences * c.d_inner * (c.d_conv - 1);
  for (GradientLayer& l : layers) {
    l.ssm = l.conv = l.final_ssm = l.final_conv = nullptr;
    if (p.with_state) plan.take(l.ssm, ssm);
    if (p.with_state && conv > 0) plan.take(l.conv, conv);
    if (p.keeps_state) plan.take(l.final_ssm, ssm);
    if (p.keeps_state && conv > 0) plan.take(l.final_conv, conv);
  }
}

void take_gradients(Plan& plan, GradientMemory& m, const PolicyConfig& c) {
  const std::int64_t rows = m.shape.rows();
  plan.take(m.d_hidden, rows, c.d_model);
  plan.take(m.d_normed, rows, c.d_model);
  for (Matrix* matrix : {&m.d_gated, &m.ds, &m.dz, &m.dx, &m.ddt}) plan.take(*matrix, rows, c.d_inner);
  if (c.spec.input_dt == core::InputDt::mean) plan.take(m.d_input_dt, rows, c.d_inner);
  plan.take(m.d_low, rows, c.dt_rank);
  for (Matrix* matrix : {&m.db, &m.dc}) plan.take(*matrix, rows, c.d_state);
  plan.take(m.d_head_hidden, rows, m.shape.head_width);
  plan.take(m.d_frames, rows, c.d_input);
}

}  // namespace

bool is_selective_scan(const core::PolicySpec& spec, bool decays_input) {
  return spec.input_dt == core::InputDt::per_channel && !decays_input;
}

float* PartialSums::into(float* to, std::int64_t parts, std::int64_t count) {
  if (to == nullptr || count == 0) return nullptr;
  float* const from = memory_ + used_;
  used_ += padded(parts * count);
  if (used_ > floats_)
    core::fail(core::ErrorKind::internal, "", "the parts of a gradient exceed their memory");
  policy::PartSum sum{};
  sum.from = from, sum.to = to, sum.parts = parts, sum.count = count, sum.adds = adds_ ? 1 : 0;
  sums_.push_back(sum);
  return from;
}

void PartialSums::also_into(float* to, const float* factor) {
  policy::PartSum sum = sums_.back();
  sum.to = to, sum.factor = factor;
  sums_.push_back(sum);
}

GradientMemory::GradientMemory(Context& context, const PolicyConfig& c, const GradientShape& given)
    : shape(given), layers(static_cast<std::size_t>(c.n_layer)) {
  const std::int64_t rows = shape.rows();
  Plan plan;
  plan.take(frames, rows, c.d_input);
  plan.take(d_outs, rows, shape.gradient ? c.d_output : 0);
  take_states(plan, layers, c, shape);
  for (GradientLayer& layer : layers) take_layer(plan, layer, c, shape);
  plan.take(hidden, rows, c.d_model);
  if (c.spec.final_norm) plan.take(final, rows, c.d_model);
  plan.take(head_hidden, rows, shape.head_width);
  plan.take(outs, rows, c.d_output);
  float* parts = nullptr;
  std::size_t scratch = 0;
  std::int64_t part_floats = 0;
  if (shape.gradient) {
    take_gradients(plan, *this, c);
    part_floats = most_part_floats(c, shape);
    plan.take(parts, part_floats);
    scratch = plan.take_bytes(scan_bytes(context, c, shape));
  }
  memory_ = context.device_pool().allocate(plan.bytes());
  plan.set(address());
  if (!c.spec.final_norm) final = hidden;
  sums = PartialSums(parts, part_floats);
  scan_scratch = address() + scratch;
}

core::ScanShape layer_scan(const PolicyConfig& c, const GradientShape& p, bool skip, bool gradient) {
  using core::ScanOperand;
  core::ScanShape scan;
  scan.batch = p.sequences, scan.seq = p.seq, scan.dim = c.d_inner, scan.state = c.d_state;
  scan.options.dt_softplus = true;
  scan.options.dt_min = c.spec.dt_min, scan.options.dt_max = c.spec.dt_max;
  scan.add(ScanOperand::z);
  scan.add(ScanOperand::dt_bias);
  if (skip) scan.add(ScanOperand::d);
  if (p.with_state) scan.add(ScanOperand::initial_state);
  if (!gradient) {
    if (p.keeps_state) scan.add(ScanOperand::final_state);
    return scan;
  }
  scan.remove(ScanOperand::y);
  for (const ScanOperand id :
       {ScanOperand::dy, ScanOperand::grad_x, ScanOperand::grad_dt, ScanOperand::grad_a, ScanOperand::grad_b,
        ScanOperand::grad_c, ScanOperand::grad_z}) {
    scan.add(id);
  }
  if (skip) scan.add(ScanOperand::grad_d);
  return scan;
}

}  // namespace exphil::cuda
