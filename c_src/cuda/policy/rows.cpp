#include "cuda/policy/rows.hpp"

#include <algorithm>

#include "core/error.hpp"
#include "cuda/device/slow_call.hpp"
#include "cuda/device/staged_bytes.hpp"
#include "cuda/jit/kernel_compiler.hpp"
#include "cuda/policy/batch_frame.hpp"
#include "cuda/policy/scan_frame.hpp"
#include "kernels/policy/cell_batch_layout.cuh"

namespace exphil::cuda {
namespace {

using policy::Kind;

const char* const kFiles[] = {
    "policy/product.cu", "policy/convolution.cu", "policy/mean.cu",  "policy/scan.cu",     "policy/cell.cu",
    "policy/heads.cu",   "policy/gate.cu",        "policy/angle.cu", "policy/rotation.cu", "policy/delay.cu"};
const char* const kIndexNames[] = {"PRODUCT", "CONVOLUTION", "MEAN",  "SCAN",     "CELL",
                                   "HEADS",   "GATE",        "ANGLE", "ROTATION", "DELAY"};

// They have files of their own.
const char* const kCellBatch = "policy_cell_batch";
const char* const kCellRest = "policy_cell_rest";
const char* const kCellAhead = "policy_cell_ahead";
const char* const kCellWide = "policy_cell_wide";
const char* const kProductWide = "policy_product_wide";

std::vector<std::string> product_entries(const policy::Network& n, const policy::Product& product) {
  std::vector<std::string> names = {"policy_product_few", "policy_product_some", "policy_product_many"};
  if (product.norm != policy::Norm::none) names.push_back("policy_row_scales");
  if (policy::has_wide(n, product)) names.push_back(kProductWide);  // the last one
  return names;
}

// The kernels of a phase, in the order in which RowKernels::Walk finds them.
std::vector<std::string> entries(const policy::Network& n, policy::Phase phase) {
  switch (phase.kind) {
    case Kind::product:
      if (n.products[phase.index].is_short) return {};
      if (n.products[phase.index].diagonal) return {"policy_diagonal"};
      return product_entries(n, n.products[phase.index]);
    case Kind::convolution:
      if (policy::joined_convolutions(n, phase.index).first != phase.index) return {};
      if (policy::kept_by_scan(n, phase.index)) return {"policy_convolve_batch", "policy_convolve_time"};
      return {"policy_convolve_batch", "policy_convolve_time", "policy_keep_history"};
    case Kind::mean:
      return {"policy_mean"};
    case Kind::cell:
      if (n.cells[phase.index].before == policy::kNoVector) return {"policy_cell_time"};
      if (policy::cell_products(n, n.cells[phase.index]).x == policy::kNoPhase) {
        return {"policy_cell_recall", "policy_cell_frame"};
      }
      if (n.on_tensor_cores()) return {"policy_cell_recall", "policy_cell_frame", kCellWide};
      return {"policy_cell_recall", "policy_cell_frame", kCellBatch, kCellRest, kCellAhead};
    case Kind::heads:
      return {"policy_heads_batch", "policy_heads_time"};
    case Kind::gate:
      return {"policy_gate"};
    case Kind::angle:
      return {"policy_angle"};
    case Kind::rotation:
      return {"policy_rotation"};
    case Kind::delay:
      return {"policy_delay"};
    case Kind::scan:
      break;
  }
  return {"policy_advance_batch", "policy_advance_time"};
}

// A vector that a phase of a block reads.
template <class Call>
void for_each_read(const policy::Network& n, const policy::Phase& phase, Call call) {
  const int at = phase.index;
  if (phase.kind == Kind::product) call(n.products[at].in);
  if (phase.kind == Kind::convolution) call(n.convolutions[at].in);
  if (phase.kind == Kind::mean) call(n.means[at].in);
  const policy::Scan& s = n.scans[at];
  for (const int vector : {s.x, s.dt, s.b, s.c, s.z, s.input_dt}) {
    if (phase.kind == Kind::scan && vector != policy::kNoVector) call(vector);
  }
  for (int gate = 0; phase.kind == Kind::cell && gate < formulas::kMaxGates; ++gate) {
    for (const int vector : {n.cells[at].x[gate], n.cells[at].h[gate]}) {
      if (vector != policy::kNoVector) call(vector);
    }
  }
}

// Whether the launches of a cell's frames can have all that depends on its state before the frame: products
// of that state, of which the cell alone reads the outputs.
bool recurrent_products_fit(const policy::Network& n, const policy::Block& block,
                            const policy::GatedCell& cell) {
  const auto is_h = [&](int vector) {
    return std::find(std::begin(cell.h), std::end(cell.h), vector) != std::end(cell.h);
  };
  bool fit = true;
  int made = 0;  // of h
  for (int i = 0; cell.before != policy::kNoVector && i < block.count; ++i) {
    const policy::Phase phase = block.phases[i];
    const policy::Product& product = n.products[phase.index];
    const bool recurrent = phase.kind == Kind::product && product.in == cell.before;
    for (int o = 0; recurrent && o < product.outputs; ++o, ++made) fit = fit && is_h(product.out[o].vector);
    fit = fit && !(recurrent && (product.adds || product.is_short));
    const bool self = phase.kind == Kind::cell && &n.cells[phase.index] == &cell;
    for_each_read(n, phase, [&](int vector) {
      fit = fit && (self || !is_h(vector)) && (recurrent || vector != cell.before);
    });
  }
  return fit && (cell.before == policy::kNoVector || made == formulas::gates_of(cell.cell));
}

// Throws where the kernels have no launch for what the network does.
void check(const policy::Network& n) {
  const auto require = [](bool good, const char* what) {
    if (good) return;
    core::fail(core::ErrorKind::unsupported, "", "the GPU's kernels cannot compute this policy: ", what);
  };
  for (const policy::Block* block : {&n.input, &n.layer, &n.output}) {
    for (int i = 0; i < block->count; ++i) {
      const policy::Phase phase = block->phases[i];
      if (phase.kind == Kind::product && n.products[phase.index].is_short) {
        require(policy::fused_into(n, phase.index).index != policy::kNoPhase,
                "neither a mean nor a scan follows a product of a part of a vector");
      }
      if (phase.kind == Kind::cell) {
        require(recurrent_products_fit(n, *block, n.cells[phase.index]),
                "what reads a cell's state is not a product whose outputs that cell alone reads");
      }
      if (phase.kind == Kind::heads && n.heads[phase.index].trapezoid()) {
        const policy::Heads& heads = n.heads[phase.index];
        const int owner = policy::row_place(n, heads.rate).owner;
        require(
            policy::row_place(n, heads.a).owner == owner && policy::row_place(n, heads.mix).owner == owner,
            "dt, a and mix of its heads are not outputs of one product");
      }
      if (phase.kind != Kind::scan) continue;
      const policy::Scan& scan = n.scans[phase.index];
      const int fused = policy::fused_product(n, Kind::scan, phase.index);
      const int owner = policy::row_place(n, scan.b).owner;
      require(policy::row_place(n, scan.c).owner == owner &&
                  (fused == policy::kNoPhase || policy::row_place(n, n.products[fused].in).owner == owner),
              "b and c of a scan are not outputs of one product");
    }
  }
}

// Whether a vector has an array of its own: not what only a scan's launch computes and reads.
bool has_array(const policy::Network& n, int vector) {
  if (n.values(vector) == 0 || vector == n.frame || vector == n.outs) return false;
  for (int i = 0; i < policy::kMostPhases; ++i) {
    const int fused = policy::fused_product(n, Kind::scan, i);
    if (fused != policy::kNoPhase && n.products[fused].out[0].vector == vector) return false;
  }
  return policy::row_place(n, vector).owner == vector;
}

}  // namespace

KernelSpec row_kernel(const PolicyDims& dims, policy::Phase phase, const std::string& entry) {
  const auto kind = static_cast<std::size_t>(phase.kind);
  std::vector<std::string> defines = dims.defines();
  defines.push_back(define(kIndexNames[kind], phase.index));
  const bool diagonal = phase.kind == Kind::product && dims.network().products[phase.index].diagonal;
  const bool batch = entry == kCellBatch || entry == kCellRest || entry == kCellAhead;
  const char* const file = diagonal                ? "policy/diagonal.cu"
                           : batch                 ? "policy/cell_batch.cu"
                           : entry == kCellWide    ? "policy/cell_wide.cu"
                           : entry == kProductWide ? "policy/product_wide.cu"
                                                   : kFiles[kind];
  return {file, entry, defines};
}

std::vector<KernelSpec> row_kernels(const PolicyDims& dims) {
  const policy::Network& n = dims.network();
  std::vector<KernelSpec> all;
  for (const policy::Block* block : {&n.input, &n.layer, &n.output}) {
    for (int i = 0; i < block->count; ++i) {
      for (const std::string& entry : entries(n, block->phases[i])) {
        all.push_back(row_kernel(dims, block->phases[i], entry));
      }
    }
  }
  return all;
}

std::vector<KernelSpec> row_modules(const DeviceProperties& device, const PolicyDims& dims,
                                    const PolicyTuning& tuning) {
  std::vector<KernelSpec> modules;
  if (KeptValues(dims.network()).all() > 0) modules.push_back(kept_kernel("policy_keep_rows"));
  for (const KernelSpec& spec : row_kernels(dims)) {
    const bool next =
        modules.empty() || modules.back().file != spec.file || modules.back().defines != spec.defines;
    if (next) modules.push_back(spec);
  }
  if (const auto frame = scan_frame_shape(device, dims, tuning)) {
    modules.push_back(scan_frame_kernel(dims, *frame));
  }
  for (int cell = 0; cell < policy::kMostPhases; ++cell) {
    const auto frame = batch_frame_shape(device, dims, tuning, cell);
    if (frame) modules.push_back(batch_frame_kernel(dims, cell, *frame));
    if (tuning.wide_walk > 0 && compiles_warpgroups(device.architecture()) &&
        policy::wide_walk(dims.network(), dims.network().cells[cell]).team > 0) {
      modules.push_back(cell_walk_wide_kernel(dims, cell));
    }
    const std::vector<walk::Shape> shapes = cell_walk_candidates(device, dims, tuning, cell);
    if (shapes.empty()) continue;
    modules.push_back(cell_walk_kernel(dims, cell, shapes.front(), tuning.counts != 0));
    const int product = pipelined_product(dims, tuning);
    if (product == policy::kNoPhase) continue;
    modules.push_back(cell_walk_kernel(dims, cell, shapes.front(), tuning.counts != 0, true));
    modules.push_back(product_follow_kernel(dims, product));
  }
  return modules;
}

void RowBuffers::reserve(Context& context, const PolicyDims& dims, std::int64_t rows) {
  if (rows <= capacity) return;
  const policy::Network& n = dims.network();
  const auto floats = [rows](std::int64_t per_row) { return static_cast<std::size_t>(rows * per_row) * 4; };
  DevicePool& device = context.device_pool();
  PinnedPool& pinned = context.pinned_pool();
  capacity = 0, ++version;  // until all allocations have succeeded
  const std::size_t in_bytes = floats(n.size(n.frame)) + static_cast<std::size_t>(rows) * kRowTableBytes;
  host_in = pinned.allocate(in_bytes);
  host_out = pinned.allocate(floats(n.size(n.outs)));
  in = device.allocate(in_bytes);
  out = device.allocate(floats(n.size(n.outs)));
  arrays.resize(policy::kMostVectors);
  for (int vector = 0; vector < policy::kMostVectors; ++vector) {
    if (!has_array(n, vector)) continue;
    arrays[static_cast<std::size_t>(vector)] = device.allocate(floats(policy::row_place(n, vector).stride));
  }
  last_hidden = device.allocate(floats(n.size(n.hidden)));
  scale = device.allocate(floats(policy::norm_values(n)));
  capacity = rows;
}

RowKernels::RowKernels(Context& context, const PolicyDims& dims, const PolicyTuning& tuning,
                       const core::PolicyWeights& weights)
    : context_(context),
      dims_(dims),
      tuning_(tuning),
      warpgroups_(compiles_warpgroups(context.properties().architecture())),
      kept_(dims.network()) {
  check(dims.network());
  layout_ = row_layout(dims);
  const StagedBytes packed(context, layout_.bytes);
  pack_rows(weights, dims, layout_, packed.data());
  weights_ = context.device_pool().allocate(packed.size());
  {
    const SlowCall slow(&context.armed());
    context.check(driver().cuMemcpyHtoD(weights_.address(), packed.data(), packed.size()), "cuMemcpyHtoD");
  }
  input_ = kernels_of(dims.network().input);
  layer_ = kernels_of(dims.network().layer);
  output_ = kernels_of(dims.network().output);
  if (kept_.all() > 0) {
    keep_ = context.kernels().get(kept_kernel("policy_keep_rows"));
    gather_ = context.kernels().get(kept_kernel("policy_gather_rows"));
  }
  for (const policy::GatedCell& cell : dims.network().cells) {
    const policy::CellProducts products = policy::cell_products(dims.network(), cell);
    if (products.x == policy::kNoPhase || (dims.network().on_tensor_cores() && !warpgroups_)) continue;
    cell_products_ = products;  // it is the layer's only cell
  }
  for (int cell = 0; cell < policy::kMostPhases; ++cell) {
    if (!frame_) frame_ = find_batch_frame(context, dims, tuning, cell);
    walks_[static_cast<std::size_t>(cell)] = CellWalk::find(context, dims, tuning, cell);
    if (tuning.wide_walk > 0) {
      wide_walks_[static_cast<std::size_t>(cell)] = CellWalkWide::find(context, dims, cell);
    }
  }
  if (!frame_) frame_ = find_scan_frame(context, dims, tuning);
  pipeline_ = LayerPipeline::find(context, dims, tuning);
}

std::size_t RowKernels::shared_of(const policy::Phase& phase, const std::string& entry) const {
  const policy::Network& n = dims_.network();
  if (!warpgroups_) return 0;
  if (entry == kProductWide) {
    return static_cast<std::size_t>(policy::wide_product_bytes(n.size(n.products[phase.index].in)));
  }
  return entry == kCellWide ? static_cast<std::size_t>(policy::wide_cell(n, n.cells[phase.index]).shared) : 0;
}

RowKernels::BlockKernels RowKernels::kernels_of(const policy::Block& block) const {
  BlockKernels all;
  for (int i = 0; i < block.count; ++i) {
    all.emplace_back();
    for (const std::string& entry : entries(dims_.network(), block.phases[i])) {
      all.back().push_back(context_.kernels().get(row_kernel(dims_, block.phases[i], entry),
                                                  shared_of(block.phases[i], entry)));
    }
  }
  return all;
}

policy::ProductMatrix RowKernels::matrix(const RowLayout::Phase& product) const {
  return {product.weights.in(weights_.as<void>()), address(product.bias), address(product.scale),
          address(product.sums)};
}

policy::ShortMatrix RowKernels::short_matrix(const RowLayout::Phase& product) const {
  return {product.weights.in(weights_.as<void>()), address(product.bias)};
}

std::int64_t RowKernels::layer_stride() const {
  if (layout_.layers.size() < 2) return 0;
  return layout_.layers[1].front().weights.at - layout_.layers.front().front().weights.at;
}

int RowKernels::launches() const {
  const policy::Network& n = dims_.network();
  const int of_layer = cell_products_.x == policy::kNoPhase ? n.layer.count : 1;
  return n.input.count + n.layers * of_layer + n.output.count;
}

std::int64_t RowKernels::values_ahead() const {
  const policy::Network& n = dims_.network();
  if (cell_products_.h == policy::kNoPhase || n.on_tensor_cores()) return 0;
  return std::int64_t{n.layers} * n.rows(n.products[cell_products_.h]);
}

policy::WindowArguments RowKernels::window_weights() const {
  const policy::Network& n = dims_.network();
  policy::WindowArguments p{};
  policy::ProductMatrix* to = p.weights;
  const auto append = [&](const policy::Block& phases, const RowLayout::Block& block) {
    for (int i = 0; i < phases.count; ++i, ++to) {
      const RowLayout::Phase& at = block[static_cast<std::size_t>(i)];
      if (phases.phases[i].kind == Kind::product) {
        const policy::Product& product = n.products[phases.phases[i].index];
        *to = matrix(at);
        if (product.is_short) to->row_scale = to->bias + n.rows(product);
      } else {
        to->weights = address(at.channels), to->bias = address(at.values);
      }
    }
  };
  append(n.input, layout_.input);
  append(n.layer, layout_.layers.front());
  append(n.output, layout_.output);
  p.layer_stride = layer_stride();
  return p;
}

}  // namespace exphil::cuda
