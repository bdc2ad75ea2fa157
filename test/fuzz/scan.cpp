// Scan requests: shapes, dtypes and options as a caller may give them. What the checks accept and is small is
// also computed by the scalar reference, on memory of exactly the size that the shapes need.
#include <fuzzer/FuzzedDataProvider.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "core/associative/problem.hpp"
#include "core/associative/reference.hpp"
#include "core/scan/call.hpp"
#include "core/scan/reference.hpp"
#include "core/ssd/reference.hpp"
#include "guards.hpp"

namespace {

using namespace exphil;
using core::TensorView;

constexpr core::Dtype kDtypes[] = {core::Dtype::f32, core::Dtype::f16, core::Dtype::bf16, core::Dtype::c64,
                                   core::Dtype::f64, core::Dtype::s32, core::Dtype::s64};
constexpr std::int64_t kSizes[] = {
    0, 1, 2, 3, 4, 5, 8, 256, 257, 1 << 24, std::int64_t{1} << 31, std::int64_t{1} << 62, INT64_MAX};
constexpr std::int64_t kMostElements = 4096;  // computed only below this

class Request {
 public:
  explicit Request(FuzzedDataProvider& data) : data_(data) {
    for (std::int64_t& size : sizes_) size = number();
    dtype_ = data_.PickValueInArray(kDtypes);
  }

  // A tensor of these axes (indices into the request's sizes); now and then something else.
  TensorView tensor(std::initializer_list<int> axes, core::Dtype dtype) {
    TensorView view;
    view.dtype = odd() ? data_.PickValueInArray(kDtypes) : dtype;
    for (const int axis : axes) view.shape.push_back(odd() ? number() : sizes_[axis]);
    if (odd() && view.shape.rank() < core::Shape::kMaxRank) view.shape.push_back(number());
    __int128 bytes = static_cast<__int128>(core::dtype_size(view.dtype));
    for (int axis = 0; axis < view.shape.rank() && bytes < kMostElements * 16; ++axis)
      bytes *= view.shape[axis];
    if (bytes < kMostElements * 16) {
      memory_.emplace_back(static_cast<std::size_t>(bytes),
                           static_cast<unsigned char>(data_.ConsumeIntegral<char>()));
      view.data = memory_.back().data();
      view.bytes = static_cast<std::size_t>(bytes);
    } else {
      view.bytes = static_cast<std::size_t>(bytes);  // announced; never read, because it is not computed
    }
    return view;
  }

  std::optional<TensorView> maybe(std::initializer_list<int> axes, core::Dtype dtype) {
    if (data_.ConsumeIntegralInRange(0, 2) != 0) return std::nullopt;
    return tensor(axes, dtype);
  }

  core::Dtype dtype() const { return dtype_; }
  bool backed() const { return total() < kMostElements; }

 private:
  bool odd() { return data_.ConsumeIntegralInRange(0, 40) == 40; }
  std::int64_t number() {
    return data_.ConsumeIntegralInRange(0, 12) == 12 ? data_.PickValueInArray(kSizes)
                                                     : data_.ConsumeIntegralInRange<std::int64_t>(1, 5);
  }
  std::int64_t total() const {
    __int128 product = 1;
    for (const std::int64_t size : sizes_)
      product *= std::min<std::int64_t>(std::max<std::int64_t>(size, 1), 1 << 20);
    return product < kMostElements ? static_cast<std::int64_t>(product) : kMostElements;
  }

  FuzzedDataProvider& data_;
  std::int64_t sizes_[6];  // batch, seq, dim or heads, state, groups, headdim
  core::Dtype dtype_;
  std::vector<std::vector<unsigned char>> memory_;
};

std::size_t result_bytes(const core::ScanShape& shape, core::ScanOperand id) {
  return id == core::ScanOperand::final_state
             ? static_cast<std::size_t>(shape.state_floats()) * sizeof(float)
             : static_cast<std::size_t>(shape.y_elements()) * core::dtype_size(shape.dtype);
}

void check_scan(FuzzedDataProvider& data) {
  Request request(data);
  core::ScanOptions options;
  options.discretization = static_cast<formulas::Discretization>(data.ConsumeIntegralInRange(0, 5));
  options.dt_softplus = data.ConsumeBool();
  if (data.ConsumeBool()) options.dt_min = data.ConsumeFloatingPoint<float>();
  if (data.ConsumeBool()) options.dt_max = data.ConsumeFloatingPoint<float>();
  options.direction = static_cast<core::Direction>(data.ConsumeIntegralInRange(0, 2));
  const core::Dtype dtype = request.dtype(), f32 = core::Dtype::f32;
  const bool complex = data.ConsumeIntegralInRange(0, 3) == 0, full = data.ConsumeIntegralInRange(0, 3) == 0;
  const core::Dtype of_a = complex ? core::Dtype::c64 : f32, of_b = complex ? core::Dtype::c64 : dtype;
  const auto projection = [&]() {
    const int form = data.ConsumeIntegralInRange(0, 2);
    return form == 0   ? request.tensor({0, 1, 3}, of_b)
           : form == 1 ? request.tensor({0, 1, 4, 3}, of_b)
                       : request.tensor({2, 3}, complex ? of_b : f32);
  };
  core::ScanInputs inputs;
  inputs.x = request.tensor({0, 1, 2}, dtype);
  inputs.dt = request.tensor({0, 1, 2}, dtype);
  inputs.a = full ? request.tensor({2, 3, 3}, of_a) : request.tensor({2, 3}, of_a);
  inputs.b = projection();
  inputs.c = projection();
  inputs.d = request.maybe({2}, f32);
  inputs.z = request.maybe({0, 1, 2}, dtype);
  inputs.dt_bias = request.maybe({2}, f32);
  inputs.initial_state = request.maybe({0, 2, 3}, of_a);

  const bool both = options.direction == core::Direction::both;
  core::ScanCall call = core::validate_scan(inputs, options, {!both && data.ConsumeBool(), false});
  const core::ScanShape& shape = call.shape;
  if (!request.backed() || shape.batch * shape.seq * shape.dim * shape.state > kMostElements) return;
  std::vector<std::vector<unsigned char>> results;
  for (const core::ScanOperand id :
       {core::ScanOperand::y, core::ScanOperand::y_reverse, core::ScanOperand::final_state}) {
    if (!shape.has(id)) continue;
    results.emplace_back(std::max<std::size_t>(1, result_bytes(shape, id)));
    call.operands[id] = results.back().data();
  }
  core::scan_reference_f32(call);
}

void check_associative(FuzzedDataProvider& data) {
  Request request(data);
  core::AssociativeOptions options;
  options.axis = data.ConsumeIntegralInRange(-6, 6);
  options.direction = static_cast<core::Direction>(data.ConsumeIntegralInRange(0, 2));
  options.compensated = data.ConsumeBool();
  options.block_size = data.ConsumeBool() ? 0 : data.ConsumeIntegralInRange(-1, 9000);
  core::AssociativeInputs inputs;
  const bool long_shape = data.ConsumeBool();
  const auto make = [&] {
    return long_shape ? request.tensor({0, 1, 2, 3}, request.dtype())
                      : request.tensor({0, 1}, request.dtype());
  };
  inputs.x = make();
  if (data.ConsumeBool()) inputs.a = make();
  const core::AssociativeProblem problem = core::validate_associative(
      static_cast<core::AssociativeOp>(data.ConsumeIntegralInRange(0, 4)), inputs, options);
  if (!request.backed() || problem.elements() > kMostElements || problem.dtype != core::Dtype::f32) return;
  std::vector<float> y(static_cast<std::size_t>(problem.elements()));
  core::associative_plain_loop(problem, false, y.data());
}

void check_ssd(FuzzedDataProvider& data) {
  using Id = core::SsdOperand;
  Request request(data);
  core::DtOptions options;
  options.dt_softplus = data.ConsumeBool();
  if (data.ConsumeBool()) options.dt_min = data.ConsumeFloatingPoint<float>();
  if (data.ConsumeBool()) options.dt_max = data.ConsumeFloatingPoint<float>();
  const core::Dtype dtype = request.dtype(), f32 = core::Dtype::f32;
  core::SsdTensors tensors;
  tensors[Id::x] = request.tensor({0, 1, 2, 5}, dtype), tensors[Id::dt] = request.tensor({0, 1, 2}, dtype);
  tensors[Id::a] = request.tensor({2}, f32);
  tensors[Id::b] = request.tensor({0, 1, 4, 3}, dtype), tensors[Id::c] = request.tensor({0, 1, 4, 3}, dtype);
  tensors[Id::d] = data.ConsumeBool() ? request.maybe({2}, f32) : request.maybe({2, 5}, f32);
  tensors[Id::z] = request.maybe({0, 1, 2, 5}, dtype), tensors[Id::dt_bias] = request.maybe({2}, f32);
  tensors[Id::initial_state] = request.maybe({0, 2, 5, 3}, f32);
  tensors[Id::dy] = request.maybe({0, 1, 2, 5}, dtype);
  tensors[Id::d_final_state] = request.maybe({0, 2, 5, 3}, f32);
  const core::SsdCall call = core::validate_ssd(options, tensors);
  const core::SsdShape& s = call.shape;
  if (!request.backed() || s.batch * (s.seq + 1) * s.heads * s.headdim * s.state > kMostElements) return;
  s.gradient() ? core::ssd_grad_reference(call) : core::ssd_reference(call);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  fuzz::run_guarded(size + 4096, [&] {
    FuzzedDataProvider data(bytes, size);
    const int kind = data.ConsumeIntegralInRange(0, 2);
    kind == 0 ? check_scan(data) : kind == 1 ? check_associative(data) : check_ssd(data);
  });
  return 0;
}
