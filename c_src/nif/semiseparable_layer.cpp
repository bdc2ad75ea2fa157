// AR-SSM layers: loading onto a backend, their description, the forward pass with diagnostics, and the
// gradient.
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/checkpoint/safetensors.hpp"
#include "core/semiseparable/gradient.hpp"
#include "core/semiseparable/layer.hpp"
#include "nif/functions.hpp"

namespace exphil::nif {

namespace {

std::shared_ptr<const core::SemiseparableWeights> weights_of(Call& call, Term from, bool check_finite) {
  if (!enif_is_list(call.env(), from)) {
    const auto path = Decoder<std::string>::decode(call, from, "path");
    return core::load_semiseparable(core::Safetensors::open(path), check_finite);
  }
  std::map<std::string, core::TensorView> tensors;
  for (const auto& [name, term] :
       Decoder<std::vector<std::tuple<std::string, Term>>>::decode(call, from, "tensors")) {
    tensors[name] = Decoder<core::TensorView>::decode(call, term, name.c_str());
  }
  return core::load_semiseparable(tensors, check_finite);
}

std::size_t float_bytes(std::int64_t rows, std::int64_t columns) {
  const std::int64_t floats = core::checked_multiply(rows, columns, "x");
  return static_cast<std::size_t>(core::checked_multiply(floats, sizeof(float), "x"));
}

}  // namespace

Term load_layer(Call& call, BackendChoice choice, std::int64_t device, Term from, bool check_finite) {
  core::Backend& backend = open_backend(choice, device);
  auto loaded = std::make_shared<LoadedLayer>();
  loaded->backend = &backend;
  loaded->device = backend.describe();
  loaded->weights = weights_of(call, from, check_finite);
  loaded->layer = backend.load_semiseparable(*loaded->weights);
  return encode_handle(call, LayerHandle{std::move(loaded)});
}

Term layer_info(Call& call, LayerHandle& handle) {
  const LoadedLayer& loaded = *handle.loaded;
  const core::SemiseparableConfig& config = loaded.layer->config();
  return encode(call, Map{{{"hidden"}, encode_integer(call, config.hidden)},
                          {{"rank"}, encode_integer(call, config.rank)},
                          {{"gate_hidden"}, encode_integer(call, config.gate_hidden)},
                          {{"resident_bytes"},
                           encode_integer(call, static_cast<std::int64_t>(loaded.layer->resident_bytes()))},
                          {{"device"}, encode_device(call, loaded.device)}});
}

// %{y, gates, effective_rank, gate_penalty}
Term layer_forward(Call& call, LayerHandle& handle, core::TensorView x, bool bidirectional) {
  LoadedLayer& loaded = *handle.loaded;
  const core::SemiseparableConfig& config = loaded.layer->config();
  const core::SemiseparableInput input = core::validate_semiseparable(config, x, bidirectional);
  const std::int64_t positions = input.batch * input.seq;
  Result y(call, *loaded.backend, float_bytes(positions, config.hidden));
  Result gates(call, *loaded.backend, float_bytes(positions, config.rank));
  Result ranks(call, *loaded.backend, float_bytes(positions, 1));
  loaded.layer->forward(input, {y.floats(), gates.floats()});
  core::effective_rank(gates.floats(), positions, config.rank, ranks.floats());
  const double penalty = core::gate_penalty(gates.floats(), positions * config.rank);
  const auto tensor = [&](const core::Shape& shape, Result& result) {
    return encode_tensor(call, core::Dtype::f32, shape, result.term());
  };
  return encode(call, Map{{{"y"}, tensor(x.shape, y)},
                          {{"gates"}, tensor({input.batch, input.seq, config.rank}, gates)},
                          {{"effective_rank"}, tensor({input.batch, input.seq}, ranks)},
                          {{"gate_penalty"}, enif_make_double(call.env(), penalty)}});
}

// %{dx, weights: [{name, tensor}]}
Term layer_grad(Call& call, LayerHandle& handle, core::TensorView x, core::TensorView dy, double d_penalty,
                bool bidirectional) {
  LoadedLayer& loaded = *handle.loaded;
  const core::SemiseparableConfig& c = loaded.layer->config();
  const core::SemiseparableGrad gradient = core::semiseparable_grad(
      *loaded.weights, core::validate_semiseparable_grad(c, x, dy, d_penalty, bidirectional));
  const auto tensor = [&](const core::Shape& shape, const std::vector<double>& values) {
    Result result(call, *loaded.backend, values.size() * sizeof(float));
    for (std::size_t i = 0; i < values.size(); ++i) result.floats()[i] = static_cast<float>(values[i]);
    return encode_tensor(call, core::Dtype::f32, shape, result.term());
  };
  const auto named = [&](const char* name, const core::Shape& shape, const std::vector<double>& values) {
    return enif_make_tuple2(call.env(), encode(call, std::string(name)), tensor(shape, values));
  };
  const core::Shape projection{c.rank, c.hidden};
  const std::vector<Term> weights = {
      named("complexity_gate.0.weight", {c.gate_hidden, c.hidden}, gradient.gate_in),
      named("complexity_gate.0.bias", {c.gate_hidden}, gradient.gate_in_bias),
      named("complexity_gate.2.weight", {c.rank, c.gate_hidden}, gradient.gate_out),
      named("complexity_gate.2.bias", {c.rank}, gradient.gate_out_bias),
      named("U_proj.weight", projection, gradient.u),
      named("V_proj.weight", projection, gradient.v),
      named("T_conv.weight", {c.hidden, 1, 3}, gradient.conv),
      named("output_proj.weight", {c.hidden, c.rank}, gradient.output),
      named("output_proj.bias", {c.hidden}, gradient.output_bias)};
  return encode(call, Map{{{"dx"}, tensor(x.shape, gradient.x)}, {{"weights"}, encode_list(call, weights)}});
}

}  // namespace exphil::nif
