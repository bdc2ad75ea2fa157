// The gradient of the selective scan: grad and backward are one NIF.
#include "core/scan/gradient.hpp"

#include "nif/functions.hpp"
#include "nif/scan_request.hpp"

namespace exphil::nif {

namespace {

// The gradient of one operand during the computation, of the operand's type and shape.
class Gradient {
 public:
  Gradient(Call& call, core::Backend& backend, const core::TensorView& operand)
      : dtype_(operand.dtype), shape_(operand.shape), result_(call, backend, operand.bytes) {}

  void* data() const { return result_.data(); }
  float* floats() const { return result_.floats(); }
  Term term(Call& call) { return encode_tensor(call, dtype_, shape_, result_.term()); }

 private:
  core::Dtype dtype_;
  core::Shape shape_;
  Result result_;
};

}  // namespace

// all: also the gradients of a and of the optional operands. Returns a list of {name, tensor}, named after
// the operands: "x", "dt", "b", "c", then, with `all`, "a", "d", "z", "dt_bias", "initial_state" where given.
Term scan_grad(Call& call, BackendChoice choice, DeviceChoice devices, ScanTensor dy, ScanTensor x,
               ScanTensor dt, ScanTensor a, ScanTensor b, ScanTensor c, MaybeScanTensor d, MaybeScanTensor z,
               MaybeScanTensor dt_bias, MaybeScanTensor initial_state, MaybeScanTensor d_final_state,
               MaybeScanTensor states, ScanRequest request, bool all) {
  const core::ScanGradInputs inputs{
      {x, dt, a, b, c, d, z, dt_bias, initial_state}, dy, d_final_state, states};
  core::ScanGradProblem problem = core::validate_scan_grad(inputs, request.options);
  const std::vector<core::Backend*> backends = open_backends(choice, devices, call.device_ranges());
  problem.scan.on_device = call.device_ranges();

  std::vector<std::pair<std::string, std::unique_ptr<Gradient>>> gradients;
  const auto add = [&](const char* name, const MaybeScanTensor& operand, bool wanted) -> Gradient* {
    if (!operand || !wanted) return nullptr;
    gradients.emplace_back(name, std::make_unique<Gradient>(call, *backends.front(), *operand));
    return gradients.back().second.get();
  };
  const auto floats = [](Gradient* gradient) { return gradient == nullptr ? nullptr : gradient->floats(); };
  core::ScanGradOutputs outputs;
  outputs.x = add("x", x, true)->data();
  outputs.dt = add("dt", dt, true)->data();
  outputs.b = add("b", b, true)->data();
  outputs.c = add("c", c, true)->data();
  outputs.a = floats(add("a", a, all));
  outputs.d = floats(add("d", d, all));
  outputs.z = floats(add("z", z, all));
  outputs.dt_bias = floats(add("dt_bias", dt_bias, all));
  outputs.initial_state = floats(add("initial_state", initial_state, all));
  scan_grad_on(backends, problem, outputs);

  std::vector<Term> terms;
  for (auto& [name, gradient] : gradients) {
    terms.push_back(enif_make_tuple2(call.env(), encode(call, name), gradient->term(call)));
  }
  return encode_list(call, terms);
}

}  // namespace exphil::nif
