// The recurrences over heads, the gates, and what heads with the trapezoidal rule need beside them, of
// cuda/policy/rows_walk.hpp.
#include "cuda/policy/rows_walk.hpp"

namespace exphil::cuda {

void RowKernels::Walk::heads(const policy::Heads& p, const RowLayout::Phase& weights,
                             const Kernels& kernels) {
  policy::HeadsArguments a{};
  static_cast<policy::RowStates&>(a) = states();
  a.value = array(p.value), a.key = array(p.key), a.query = array(p.query), a.rate = array(p.rate);
  if (p.z != policy::kNoVector) a.z = array(p.z);
  a.a = k_.address(weights.channels), a.d = k_.address(weights.values);
  if (p.trapezoid()) a.value_before = array(p.value_before), a.key_before = array(p.key_before);
  if (p.delta()) a.decays = array(p.decays);
  a.out = written(p.out), a.last_only = last_ ? 1 : 0;
  const int threads = job_.batch ? policy::head_batch_threads(p) : policy::kHeadThreads;
  const int tile = threads / policy::Lanes(policy::keys_of(n_, p)).lanes;
  const unsigned tiles = grid_blocks(n_.size(p.value), job_.batch ? tile * policy::heads_ahead(p) : tile);
  const std::int64_t rows = job_.batch ? std::min<std::int64_t>(job_.rows, kMostGridY) : job_.sequences;
  start(kernels[job_.batch ? 0 : 1], {tiles, static_cast<unsigned>(rows)}, threads, a);
}

void RowKernels::Walk::gate(const policy::Gate& p, const RowLayout::Phase& weights, const Kernels& kernels) {
  policy::GateArguments a{};
  const View in = read(p.in), gate = read(p.gate == policy::kNoVector ? p.in : p.gate);
  a.in = in.first, a.in_stride = in.stride, a.gate = gate.first, a.gate_stride = gate.stride;
  a.weight = k_.address(weights.values), a.scales = k_.address(weights.channels);
  const policy::RowPlace out = policy::row_place(n_, p.out);
  a.out = written(p.out) + out.at + p.at, a.out_stride = out.stride;
  a.rows = last_ ? job_.sequences : job_.rows;
  start(kernels[0], {grid_blocks(a.rows, policy::kScaledRows)}, policy::kRowThreads, a);
}

void RowKernels::Walk::angle(const policy::Angle& p, const Kernels& kernels) {
  policy::AngleArguments a{};
  static_cast<policy::RowStates&>(a) = sequences();
  a.rate = array(p.rate), a.dt = array(p.dt), a.out = written(p.out);
  for_each_thread(kernels, std::int64_t{a.sequences} * p.heads * n_.values(p.rate), a);
}

void RowKernels::Walk::rotation(const policy::Rotation& p, const RowLayout::Phase& weights,
                                const Kernels& kernels) {
  policy::RotationArguments a{};
  a.in = array(p.in), a.turn = array(p.turn), a.out = written(p.out), a.rows = job_.rows;
  a.bias = k_.address(weights.channels), a.weight = k_.address(weights.values);
  for_each_thread(kernels, a.rows * p.ranks * p.heads * 32, a);
}

void RowKernels::Walk::delay(const policy::Delay& p, const Kernels& kernels) {
  policy::DelayArguments a{};
  static_cast<policy::RowStates&>(a) = sequences();
  a.in = array(p.in), a.out = written(p.out);
  for_each_thread(kernels, job_.rows * n_.size(p.in), a);
}

}  // namespace exphil::cuda
