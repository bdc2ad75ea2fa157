#include "core/semiseparable/weights.hpp"

#include "core/checkpoint/reader.hpp"
#include "core/checkpoint/safetensors.hpp"
#include "core/error.hpp"

namespace exphil::core {

namespace {

constexpr const char* kContent = "an adaptive-rank semiseparable layer";

void require_limit(std::int64_t size, const char* what, const CheckpointReader::Source& source) {
  if (size > kMaxSemiseparableSize) {
    fail(ErrorKind::limit_exceeded, source.argument, what, " is ", size, "; the limit is ",
         kMaxSemiseparableSize);
  }
}

std::shared_ptr<const SemiseparableWeights> load(const std::map<std::string, TensorView>& tensors,
                                                 const CheckpointReader::Source& source, bool check_finite) {
  CheckpointReader reader(tensors, source, check_finite);
  auto weights = std::make_shared<SemiseparableWeights>();
  SemiseparableConfig& c = weights->config;
  const Shape& projection = reader.shape("U_proj.weight", 2, "{rank, hidden}");
  c.rank = projection[0];
  c.hidden = projection[1];
  c.gate_hidden = reader.shape("complexity_gate.0.weight", 2, "{gate_hidden, hidden}")[0];
  require_limit(c.rank, "rank", source);
  require_limit(c.hidden, "hidden", source);
  require_limit(c.gate_hidden, "gate_hidden", source);

  weights->gate_in =
      reader.take("complexity_gate.0.weight", Shape{c.gate_hidden, c.hidden}, "{gate_hidden, hidden}");
  weights->gate_in_bias = reader.take("complexity_gate.0.bias", Shape{c.gate_hidden}, "{gate_hidden}");
  weights->gate_out =
      reader.take("complexity_gate.2.weight", Shape{c.rank, c.gate_hidden}, "{rank, gate_hidden}");
  weights->gate_out_bias = reader.take("complexity_gate.2.bias", Shape{c.rank}, "{rank}");
  weights->u = reader.take("U_proj.weight", Shape{c.rank, c.hidden}, "{rank, hidden}");
  weights->v = reader.take("V_proj.weight", Shape{c.rank, c.hidden}, "{rank, hidden}");
  weights->conv = reader.take("T_conv.weight", Shape{c.hidden, 1, 3}, "{hidden, 1, 3}");
  weights->output = reader.take("output_proj.weight", Shape{c.hidden, c.rank}, "{hidden, rank}");
  weights->output_bias = reader.take("output_proj.bias", Shape{c.hidden}, "{hidden}");
  reader.require_all_taken();
  return weights;
}

}  // namespace

std::shared_ptr<const SemiseparableWeights> load_semiseparable(const Safetensors& file, bool check_finite) {
  return load(file.tensors(), {"path", quote_path(file.path()), kContent}, check_finite);
}

std::shared_ptr<const SemiseparableWeights> load_semiseparable(
    const std::map<std::string, TensorView>& tensors, bool check_finite) {
  for (const auto& [name, view] : tensors) check_bytes(view, name);
  return load(tensors, {"tensors", "the tensors", kContent}, check_finite);
}

}  // namespace exphil::core
