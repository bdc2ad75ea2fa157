#include "cuda/ssd/scan.hpp"

#include "core/error.hpp"
#include "cuda/jit/convert.hpp"
#include "cuda/jit/elements.hpp"
#include "cuda/jit/launch.hpp"
#include "cuda/ssd/layout.hpp"
#include "kernels/policy/gradient_arguments.cuh"

namespace exphil::cuda {

namespace {

using core::Dtype;
using core::Flow;
using core::SsdShape;
using Id = core::SsdOperand;
using Addresses = core::SsdOperands<CUdeviceptr>;

// RANKS 0: the linear rule.
KernelSpec walk_spec(std::int64_t keys, bool back) {
  return {"policy/gradient_heads.cu",
          back ? "policy_gradient_heads_back" : "policy_gradient_heads",
          {define("KEYS", keys), define("RANKS", 0)}};
}
KernelSpec element_spec(Dtype dtype, const char* entry) {
  return {"ssd/elements.cu", entry, {define("ELEMENT", element_of(dtype))}};
}

std::vector<KernelSpec> specs_of(const SsdShape& s) {
  std::vector<KernelSpec> specs = {walk_spec(s.state, false), element_spec(s.dtype, "ssd_active_dt")};
  if (s.dtype != Dtype::f32) {
    for (const Flow flow : {Flow::in, Flow::out}) specs.push_back(convert_spec(s.dtype, flow));
  }
  if (!s.gradient()) {
    if (s.has(Id::z)) specs.push_back(element_spec(s.dtype, "ssd_gate"));
    return specs;
  }
  specs.push_back(walk_spec(s.state, true));
  for (const char* entry : {"ssd_dt_back", "ssd_add_parts", "ssd_gate_back"})
    specs.push_back(element_spec(s.dtype, entry));
  return specs;
}

// A call over some sequences of the batch.
class SsdPass {
 public:
  // first: the first sequence's number; operands: from it on.
  SsdPass(Context& context, CUstream stream, const SsdLayout& layout, const Addresses& operands,
          CUdeviceptr scratch, std::int64_t first, std::int64_t count)
      : context_(context),
        stream_(stream),
        at_(layout),
        s_(layout.s),
        operands_(operands),
        scratch_(scratch),
        first_(first),
        count_(count) {}

  void forward() {
    begin();
    walk(false);
    if (!s_.has(Id::y)) return;
    if (s_.has(Id::z)) {
      ssd::GateArguments a{};
      a.y = floats(Id::y), a.z = given(Id::z), a.out = given(Id::y), a.count = count_ * at_.values();
      launch_elements("ssd_gate", a.count, a);
    } else {
      narrow(Id::y);
    }
  }

  void backward() {
    begin();
    if (s_.has(Id::z)) {
      walk(false);
      ssd::GateArguments a{};
      a.y = floats(Id::y), a.z = given(Id::z), a.d_out = given(Id::dy), a.d_y = floats(Id::dy);
      a.d_z = given(Id::grad_z), a.count = count_ * at_.values();
      launch_elements("ssd_gate_back", a.count, a);
    } else {
      widen(Id::dy);
    }
    walk(true);
    narrow(Id::grad_x);
    for (const auto& [id, parts] : {std::pair{Id::grad_b, at_.b_parts}, {Id::grad_c, at_.c_parts}}) {
      if (s_.has(id)) add_parts(floats_at(parts), given(id), at_.key_parts(), count_ * at_.keys(), true);
    }
    dt_back();
  }

  // Of the whole batch: to[i] = the sum of parts.
  void add_parts(const float* from, void* to, std::int64_t parts, std::int64_t count, bool typed) const {
    launch_elements("ssd_add_parts", count, ssd::PartArguments{from, to, parts, count, typed ? 1 : 0});
  }
  float* floats_at(std::size_t place) const { return reinterpret_cast<float*>(scratch_ + place); }
  void* given(Id id) const { return s_.has(id) ? reinterpret_cast<void*>(operands_[id]) : nullptr; }

 private:
  // The tensor as floats; null where the call has none.
  float* floats(Id id) const {
    return at_.is_copied(id) ? floats_at(at_.copy[id]) : static_cast<float*>(given(id));
  }
  float* states(Id id) const { return static_cast<float*>(given(id)); }

  template <class Arguments>
  void launch_elements(const char* entry, std::int64_t count, const Arguments& arguments) const {
    if (count == 0) return;
    launch(context_, context_.kernels().get(element_spec(s_.dtype, entry)),
           {grid_blocks(divide_up(count, ssd::kThreads), "x"), 1, 1}, {ssd::kThreads, 1, 1}, 0, stream_,
           arguments);
  }
  std::int64_t elements(Id id) const {
    return count_ * (id == Id::b || id == Id::c ? at_.keys() : at_.values());
  }
  void widen(Id id) const {
    if (s_.dtype == Dtype::f32) return;
    enqueue_convert(context_, stream_, s_.dtype, Flow::in, given(id), floats(id), elements(id), "x");
  }
  void narrow(Id id) const {
    if (s_.dtype == Dtype::f32 || !s_.has(id)) return;
    enqueue_convert(context_, stream_, s_.dtype, Flow::out, floats(id), given(id), elements(id), "x");
  }

  ssd::DtArguments dt_arguments() const {
    ssd::DtArguments a{};
    a.dt = given(Id::dt), a.bias = states(Id::dt_bias), a.active = floats_at(at_.dt);
    a.rows = count_ * s_.seq, a.seq = s_.seq, a.heads = static_cast<int>(s_.heads);
    a.softplus = s_.options.dt_softplus ? 1 : 0;
    a.lowest = s_.options.dt_min, a.highest = s_.options.dt_max;
    return a;
  }
  void begin() const {
    for (const Id id : {Id::x, Id::b, Id::c}) widen(id);
    launch_elements("ssd_active_dt", count_ * s_.seq * s_.heads, dt_arguments());
  }

  void walk(bool back) const {
    policy::GradientHeadsArguments a{};
    a.value = floats(Id::x), a.dt = floats_at(at_.dt), a.key = floats(Id::b), a.query = floats(Id::c);
    a.a = states(Id::a), a.d = states(Id::d), a.initial = states(Id::initial_state);
    a.out = floats(Id::y), a.final = states(Id::final_state);
    a.sequences = count_, a.seq = s_.seq;
    a.heads = static_cast<int>(s_.heads), a.groups = static_cast<int>(s_.groups);
    a.channels = static_cast<int>(s_.headdim), a.skips = static_cast<int>(s_.skips());
    if (back) {
      a.d_final = states(Id::d_final_state), a.d_initial = states(Id::grad_initial_state);
      a.d_out = floats(Id::dy), a.d_value = floats(Id::grad_x), a.states = floats_at(at_.states);
      a.dt_parts = floats_at(at_.dt_parts);
      a.key_parts = floats_at(at_.b_parts), a.query_parts = floats_at(at_.c_parts);
      a.a_parts = floats_at(at_.a_parts) + first_ * at_.tiles * s_.heads;
      if (s_.has(Id::grad_d)) a.d_parts = floats_at(at_.d_parts) + first_ * at_.skip_parts() * s_.skips();
    }
    const unsigned blocks = grid_blocks(count_ * s_.heads * at_.tiles, "x");
    launch(context_, context_.kernels().get(walk_spec(s_.state, back)), {blocks, 1, 1},
           {policy::kHeadWalkThreads, 1, 1}, 0, stream_, a);
  }

  void dt_back() const {
    if (s_.seq == 0) return;
    ssd::DtArguments a = dt_arguments();
    a.parts = floats_at(at_.dt_parts), a.d_dt = given(Id::grad_dt), a.tiles = static_cast<int>(at_.tiles);
    if (s_.has(Id::grad_dt_bias))
      a.bias_parts = floats_at(at_.bias_parts) + first_ * at_.stretches() * s_.heads;
    const auto rows = static_cast<unsigned>(std::min<std::int64_t>(count_ * at_.stretches(), 65535));
    launch(context_, context_.kernels().get(element_spec(s_.dtype, "ssd_dt_back")),
           {grid_blocks(divide_up(s_.heads, ssd::kThreads), "x"), rows, 1}, {ssd::kThreads, 1, 1}, 0, stream_,
           a);
  }

  Context& context_;
  const CUstream stream_;
  const SsdLayout& at_;
  const SsdShape& s_;
  const Addresses operands_;
  const CUdeviceptr scratch_;
  const std::int64_t first_, count_;
};

void require_alignment(const SsdShape& s, const Addresses& operands) {
  for (const Id id : {Id::b, Id::c}) {
    if (operands[id] % core::kBestAlignment == 0) continue;
    core::fail(core::ErrorKind::invalid_argument, core::ssd_operand_name(id), core::describe(s, id).name,
               " must begin at a multiple of ", core::kBestAlignment, " bytes in device memory");
  }
}

}  // namespace

template <>
std::size_t SsdOperator::scratch(const SsdShape& shape) {
  return SsdLayout(shape).bytes;
}

template <>
void SsdOperator::prepare(Context& context, const SsdShape& shape) {
  context.kernels().prepare(specs_of(shape));
}

template <>
void SsdOperator::enqueue(Context& context, CUstream stream, const SsdShape& shape, const Addresses& operands,
                          CUdeviceptr scratch) {
  require_alignment(shape, operands);
  const SsdLayout layout(shape);
  const auto strides = core::sequence_strides(core::describe_all<Id>(shape));
  for (std::int64_t first = 0; first < shape.batch; first += layout.slice) {
    SsdPass pass(context, stream, layout, core::slice_batch(strides, operands, first), scratch, first,
                 std::min(layout.slice, shape.batch - first));
    shape.gradient() ? pass.backward() : pass.forward();
  }
  if (!shape.gradient()) return;
  const SsdPass whole(context, stream, layout, operands, scratch, 0, shape.batch);
  const auto total = [&](Id id, std::size_t from, std::int64_t parts, std::int64_t count) {
    if (shape.has(id)) whole.add_parts(whole.floats_at(from), whole.given(id), parts, count, false);
  };
  total(Id::grad_a, layout.a_parts, shape.batch * layout.tiles, shape.heads);
  total(Id::grad_d, layout.d_parts, shape.batch * layout.skip_parts(), shape.skips());
  total(Id::grad_dt_bias, layout.bias_parts, shape.batch * layout.stretches(), shape.heads);
}

std::vector<KernelSpec> ssd_kernel_variants() {
  std::vector<KernelSpec> specs;
  for (const Dtype dtype : {Dtype::f32, Dtype::f16, Dtype::bf16}) {
    for (const char* entry : {"ssd_active_dt", "ssd_gate", "ssd_dt_back", "ssd_add_parts", "ssd_gate_back"})
      specs.push_back(element_spec(dtype, entry));
  }
  for (const std::int64_t keys : {5, 64, 128, 256}) {
    for (const bool back : {false, true}) specs.push_back(walk_spec(keys, back));
  }
  return specs;
}

}  // namespace exphil::cuda
