// AR-SSM layers: loading one onto a backend, what it is, and its forward pass with diagnostics.
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/checkpoint/safetensors.hpp"
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
  loaded->layer = backend.load_semiseparable(*weights_of(call, from, check_finite));
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

// {y, gates, effective_rank, gate_penalty}
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
  return enif_make_tuple4(call.env(), tensor(x.shape, y),
                          tensor({input.batch, input.seq, config.rank}, gates),
                          tensor({input.batch, input.seq}, ranks), enif_make_double(call.env(), penalty));
}

}  // namespace exphil::nif
