// See functions.hpp.
#include <map>
#include <memory>

#include "core/policy/gradient_reference.hpp"
#include "nif/tools/functions.hpp"

namespace exphil::nif {

using core::ErrorKind;
using core::fail;

namespace {

core::PolicyValues<double> values_of(const core::PolicyWeights& policy, const NamedTensors& given) {
  std::map<std::string, core::TensorView> tensors;
  for (const auto& [name, view] : given) tensors[name] = view;
  core::PolicyValues<double> values;
  for (const std::vector<float>& of_weight : policy.values)
    values.emplace_back(of_weight.begin(), of_weight.end());
  for (const core::PolicyParameter& parameter : policy.parameters) {
    const auto found = tensors.find(parameter.name);
    if (found == tensors.end() || found->second.dtype != core::Dtype::f64 ||
        found->second.shape != parameter.shape) {
      fail(ErrorKind::invalid_argument, "weights", "weights must have ", core::quote(parameter.name),
           ", f64 of shape ", parameter.shape.to_string());
    }
    core::put_parameter(parameter, static_cast<const double*>(found->second.data), &values);
  }
  core::derive(policy.network(), &values);
  return values;
}

}  // namespace

Term reference_policy_grad(Call& call, PolicyHandle& policy, NamedTensors weights, core::TensorView frames,
                           MaybeTensor d_outs) {
  const std::shared_ptr<LoadedPolicy> loaded = policy.loaded();
  const core::PolicyWeights& like = loaded->trainable();
  const core::PolicyConfig& config = like.config;
  if (frames.dtype != core::Dtype::f32 || frames.shape.rank() != 3 || frames.shape[2] != config.d_input) {
    fail(ErrorKind::invalid_argument, "frames", "frames must be f32 of the shape {batch, seq, ",
         config.d_input, "}, got ", frames.shape.to_string());
  }
  const core::Shape outputs{frames.shape[0], frames.shape[1], config.d_output};
  if (d_outs && (d_outs->dtype != core::Dtype::f64 || d_outs->shape != outputs)) {
    fail(ErrorKind::invalid_argument, "d_outs", "d_outs must be f64 of the shape ", outputs.to_string());
  }
  core::PolicySequences sequences;
  sequences.batch = frames.shape[0], sequences.seq = frames.shape[1];
  sequences.frames = static_cast<const float*>(frames.data);
  const auto result =
      core::policy_grad_reference<double>(config, values_of(like, weights), sequences,
                                          d_outs ? static_cast<const double*>(d_outs->data) : nullptr);
  const auto tensor = [&](const core::Shape& shape, const double* values, std::size_t count) {
    return encode_tensor(call, core::Dtype::f64, shape, encode_bytes(call, values, count * sizeof(double)));
  };
  std::vector<Term> gradients;
  for (const core::PolicyParameter& parameter : like.parameters) {
    if (!d_outs) break;
    std::vector<double> values(parameter.count());
    core::copy_parameter(parameter, result.weights, values.data());
    gradients.push_back(enif_make_tuple2(call.env(), encode(call, parameter.name),
                                         tensor(parameter.shape, values.data(), values.size())));
  }
  return enif_make_tuple2(call.env(), tensor(outputs, result.outs.data(), result.outs.size()),
                          encode_list(call, gradients));
}

}  // namespace exphil::nif
