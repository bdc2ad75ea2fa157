#include "cuda/recurrent/dense.hpp"

#include "cuda/device/places.hpp"
#include "cuda/jit/convert.hpp"
#include "cuda/jit/elements.hpp"
#include "cuda/jit/launch.hpp"
#include "cuda/recurrent/walk.hpp"
#include "kernels/recurrent/dense_arguments.cuh"

namespace exphil::cuda {

namespace {

using core::Dtype;
using core::Flow;
using core::RecurrentShape;
using Id = core::RecurrentOperand;

KernelSpec weights_spec(Dtype dtype) {
  return {"recurrent/weights.cu", "recurrent_weights", {define("ELEMENT", element_of(dtype))}};
}

bool is_gradient(const RecurrentShape& s) {
  return s.has(Id::dh);
}

std::size_t floats(std::int64_t count) {
  return static_cast<std::size_t>(count) * sizeof(float);
}
std::int64_t elements_of(const RecurrentShape& s, Id id) {
  return core::describe(s, id).axes.shape().elements("");
}

// Offsets in the scratch: a float copy of each half tensor, and what the way back needs of the way there.
struct Layout {
  core::PerOperand<Id, std::size_t> copy{};
  std::size_t sums = 0, d_sums = 0, before[2] = {}, bytes = 0;

  explicit Layout(const RecurrentShape& s) {
    Places places;
    for (const Id id : core::all_operands<Id>()) {
      if (is_copied(s, id)) copy[id] = places.take(floats(elements_of(s, id)));
    }
    if (is_gradient(s)) {
      const std::int64_t rows = s.batch * s.seq, gates = s.gates() * s.hidden;
      sums = places.take(floats(rows * gates)), d_sums = places.take(floats(rows * gates));
      for (std::size_t& state : before) state = places.take(floats(rows * s.hidden));
    }
    bytes = places.bytes();
  }
  // weights.cu writes r's gradient in its type; what the operator returned is not read.
  static bool is_copied(const RecurrentShape& s, Id id) {
    return s.dtype != Dtype::f32 && s.has(id) && id != Id::grad_x1 && id != Id::given_h;
  }
};

class DenseCall {
 public:
  DenseCall(Context& context, CUstream stream, const RecurrentShape& shape,
            const core::RecurrentOperands<CUdeviceptr>& operands, CUdeviceptr scratch)
      : context_(context),
        stream_(stream),
        s_(shape),
        operands_(operands),
        scratch_(scratch),
        at_(shape),
        gates_(shape.gates() * shape.hidden) {}

  void run() {
    convert(Flow::in);
    walk();
    if (is_gradient(s_)) {
      walk_back();
      if (s_.has(Id::grad_x1)) weights();
    }
    convert(Flow::out);
  }

 private:
  float* scratch(std::size_t place) const { return reinterpret_cast<float*>(scratch_ + place); }
  // The operand as floats; null where the call has none.
  float* tensor(Id id) const {
    if (!s_.has(id)) return nullptr;
    return Layout::is_copied(s_, id) ? scratch(at_.copy[id]) : reinterpret_cast<float*>(operands_[id]);
  }
  recurrent::Rows rows(Id id) const { return {tensor(id), s_.hidden}; }
  recurrent::ConstRows read(Id id) const { return {tensor(id), s_.hidden}; }
  // Gate `gate` of rows of sums.
  float* gate_of(float* sums, int gate) const { return sums == nullptr ? nullptr : sums + gate * s_.hidden; }
  float* d_sums() const { return s_.has(Id::grad_rh) ? tensor(Id::grad_rh) : scratch(at_.d_sums); }

  template <class Arguments>
  Arguments arguments() const {
    Arguments a{};
    for (int gate = 0; gate < s_.gates(); ++gate) {
      a.weights.u[gate] = tensor(Id::x1) + gate * s_.hidden;
      a.x[gate] = gate_of(tensor(Id::x0), gate);
    }
    a.weights.u_unit = 1, a.weights.u_k = gates_;
    a.sequences = s_.batch, a.seq = s_.seq, a.sums_row = gates_, a.units = static_cast<int>(s_.hidden);
    return a;
  }

  void walk() const {
    auto a = arguments<recurrent::WalkArguments>();
    a.initial[0] = read(Id::h0), a.initial[1] = read(Id::c0);
    a.out = tensor(Id::h), a.final[0] = rows(Id::final_h), a.final[1] = rows(Id::final_c);
    if (is_gradient(s_)) {
      for (int gate = 0; gate < s_.gates(); ++gate) a.h[gate] = gate_of(scratch(at_.sums), gate);
      for (int i = 0; i < formulas::states_of(s_.cell); ++i) {
        a.before[i] = scratch(at_.before[i]);
      }
    }
    enqueue_walk(context_, stream_, s_.cell, a);
  }

  void walk_back() const {
    auto a = arguments<recurrent::WalkBackArguments>();
    for (int gate = 0; gate < s_.gates(); ++gate) {
      a.h[gate] = gate_of(scratch(at_.sums), gate);
      a.d_x[gate] = gate_of(tensor(Id::grad_x0), gate);
      a.d_h[gate] = gate_of(d_sums(), gate);
    }
    for (int i = 0; i < formulas::states_of(s_.cell); ++i) a.before[i] = scratch(at_.before[i]);
    a.d_out = tensor(Id::dh), a.d_final[0] = read(Id::d_final_h), a.d_final[1] = read(Id::d_final_c);
    a.d_initial[0] = rows(Id::grad_h0), a.d_initial[1] = rows(Id::grad_c0);
    enqueue_walk_back(context_, stream_, s_.cell, a);
  }

  void weights() const {
    const recurrent::WeightArguments a{scratch(at_.before[0]),
                                       d_sums(),
                                       reinterpret_cast<void*>(operands_[Id::grad_x1]),
                                       s_.batch * s_.seq,
                                       static_cast<int>(s_.hidden),
                                       static_cast<int>(gates_)};
    const auto tiles = [](std::int64_t count) {
      return static_cast<unsigned>((count + recurrent::kWeightTile - 1) / recurrent::kWeightTile);
    };
    launch(context_, context_.kernels().get(weights_spec(s_.dtype)), {tiles(gates_), tiles(s_.hidden), 1},
           {recurrent::kWeightThreads, 1, 1}, 0, stream_, a);
  }

  // The tensors of halves that come in, to their copies; or the results back.
  void convert(Flow flow) const {
    for (const Id id : core::all_operands<Id>()) {
      const std::int64_t count = Layout::is_copied(s_, id) ? elements_of(s_, id) : 0;
      if (count == 0 || core::describe(s_, id).flow != flow) continue;
      auto* const halves = reinterpret_cast<void*>(operands_[id]);
      enqueue_convert(context_, stream_, s_.dtype, flow, flow == Flow::in ? halves : tensor(id),
                      flow == Flow::in ? tensor(id) : halves, count, core::describe(s_, id).name);
    }
  }

  Context& context_;
  const CUstream stream_;
  const RecurrentShape& s_;
  const core::RecurrentOperands<CUdeviceptr>& operands_;
  const CUdeviceptr scratch_;
  const Layout at_;
  const std::int64_t gates_;
};

}  // namespace

std::size_t dense_scratch(const RecurrentShape& shape) {
  return Layout(shape).bytes;
}

void prepare_dense(Context& context, const RecurrentShape& s) {
  std::vector<KernelSpec> specs;
  if (s.dtype != Dtype::f32) {
    for (const Flow flow : {Flow::in, Flow::out}) specs.push_back(convert_spec(s.dtype, flow));
  }
  if (s.has(Id::grad_x1)) specs.push_back(weights_spec(s.dtype));
  if (!specs.empty()) context.kernels().prepare(specs);
  for (const Walk direction : {Walk::forward, Walk::back}) {
    if (direction == Walk::back && !is_gradient(s)) continue;
    const RecurrentPlan plan =
        plan_walk(context.properties(), direction, s.cell, static_cast<int>(s.hidden), s.batch);
    context.kernels().get(plan.spec, plan.shared_bytes);
  }
}

void enqueue_dense(Context& context, CUstream stream, const RecurrentShape& shape,
                   const core::RecurrentOperands<CUdeviceptr>& operands, CUdeviceptr scratch) {
  DenseCall(context, stream, shape, operands, scratch).run();
}

std::vector<KernelSpec> dense_kernel_variants() {
  std::vector<KernelSpec> specs;
  for (const Dtype dtype : {Dtype::f32, Dtype::f16, Dtype::bf16}) {
    specs.push_back(weights_spec(dtype));
    if (dtype == Dtype::f32) continue;
    for (const Flow flow : {Flow::in, Flow::out}) specs.push_back(convert_spec(dtype, flow));
  }
  return specs;
}

}  // namespace exphil::cuda
