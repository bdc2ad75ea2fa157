// The launches of RowKernels that compute a whole frame of a batch.
#include <cstring>

#include "cuda/policy/rows_walk.hpp"
#include "kernels/policy/scan_frame_layout.cuh"

namespace exphil::cuda {
namespace {

void copy_epsilon(const policy::Product& product, float* to) {
  std::memcpy(to, &product.epsilon, sizeof(*to));
}

}  // namespace

void RowKernels::enqueue_frame(CUstream stream, policy::AwaitedFrames frames, float* ahead,
                               bool known) const {
  const policy::Network& n = dims_.network();
  if (frame_->has_outputs()) {
    frames.of_out = matrix(layout_.output.front());
    copy_epsilon(n.products[policy::output_product(n)], &frames.out_epsilon);
  }
  frames.layer_stride = layer_stride(), frames.layer_floats = n.layer_floats;
  if (cell_products_.x != policy::kNoPhase) return enqueue_cells(stream, frames, ahead, known);
  enqueue_scans(stream, frames);
}

void RowKernels::enqueue_cells(CUstream stream, const policy::AwaitedFrames& frames, float* ahead,
                               bool known) const {
  const policy::Network& n = dims_.network();
  const RowLayout::Block& layer = layout_.layers.front();
  policy::FrameArguments a{};
  static_cast<policy::AwaitedFrames&>(a) = frames;
  a.h = ahead, a.known = known ? 1 : 0;
  a.of_x = matrix(layer[number_of(n.layer, policy::Kind::product, cell_products_.x)]);
  a.of_h = matrix(layer[number_of(n.layer, policy::Kind::product, cell_products_.h)]);
  copy_epsilon(n.products[cell_products_.x], &a.epsilon);
  frame_->enqueue(context_, stream, a);
}

void RowKernels::enqueue_scans(CUstream stream, const policy::AwaitedFrames& frames) const {
  using policy::Kind;
  const policy::Network& n = dims_.network();
  const policy::ScanLayer phases = policy::scan_layer(n);
  const auto of = [&](Kind kind, int index) -> const RowLayout::Phase& {
    return layout_.layers.front()[number_of(n.layer, kind, index)];
  };
  policy::ScanFrameArguments a{};
  static_cast<policy::AwaitedFrames&>(a) = frames;
  const int input = policy::input_product(n);
  if (input != policy::kNoPhase) {
    a.of_input = matrix(layout_.input.front());
    copy_epsilon(n.products[input], &a.input_epsilon);
  }
  a.of_in = matrix(of(Kind::product, phases.in));
  copy_epsilon(n.products[phases.in], &a.epsilon);
  a.of_parts = matrix(of(Kind::product, phases.parts));
  a.of_hidden = matrix(of(Kind::product, phases.out));
  a.of_dt = short_matrix(of(Kind::product, phases.dt));
  const RowLayout::Phase &convolution = of(Kind::convolution, phases.convolution),
                         &scan = of(Kind::scan, phases.scan);
  a.taps = address(convolution.channels), a.taps_bias = address(convolution.values);
  a.a = address(scan.channels), a.d = address(scan.values);
  a.decays_input = dims_.carried_decays() ? 1 : 0;
  frame_->enqueue(context_, stream, a);
}

}  // namespace exphil::cuda
