#include "nif/sequences.hpp"

#include <algorithm>

#include "nif/training.hpp"

namespace exphil::nif {

using core::ErrorKind;
using core::fail;
using core::Shape;

namespace {

// The parts of a state that have one name, in all layers: a tensor {batch, layers, rows, columns} for the
// caller, and floats [at, at + layers rows columns) of each sequence for the policy.
struct NamedParts {
  std::string name;
  std::int64_t layers = 0, rows = 0, columns = 0, at = 0;
  std::int64_t size() const { return layers * rows * columns; }
  Shape shape(std::int64_t batch) const { return {batch, layers, rows, columns}; }
};

std::vector<NamedParts> named_parts(const core::Network& network) {
  std::vector<NamedParts> all;
  std::int64_t at = 0;
  for (const core::StatePart& part : network.states) {
    if (all.empty() || all.back().name != part.name)
      all.push_back({part.name, 0, part.rows, part.columns, at});
    ++all.back().layers;
    at += part.size();
  }
  return all;
}

// Their names as a caller writes them, ":first, :second and :third".
std::string listed(const std::vector<NamedParts>& parts) {
  std::string text;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    text += (i == 0 ? ":" : i + 1 == parts.size() ? " and :" : ", :") + parts[i].name;
  }
  return text;
}

}  // namespace

Term encode_values(Call& call, core::Backend& backend, const core::PolicyWeights& weights,
                   const core::PolicyValues<float>& values) {
  std::vector<Term> terms;
  for (const core::PolicyParameter& parameter : weights.parameters) {
    Result result(call, backend, parameter.count() * sizeof(float));
    core::copy_parameter(parameter, values, result.floats());
    const Term tensor = encode_tensor(call, core::Dtype::f32, parameter.shape, result.term());
    terms.push_back(enif_make_tuple2(call.env(), encode(call, parameter.name), tensor));
  }
  return encode_list(call, terms);
}

core::PolicySequences sequences_of(const core::PolicyConfig& config, const core::TensorView& frames,
                                   std::int64_t least) {
  core::PolicySequences s;
  const Shape& shape = frames.shape;
  if (frames.dtype != core::Dtype::f32 || shape.rank() != 3 || shape[2] != config.d_input || shape[0] < 1 ||
      shape[1] < least) {
    fail(ErrorKind::invalid_argument, "frames", "frames must be f32 of the shape {batch, seq, ",
         config.d_input, "} with at least one sequence", least > 0 ? " of one frame" : "", ", got ",
         core::dtype_name(frames.dtype), " of shape ", shape.to_string());
  }
  s.batch = shape[0], s.seq = shape[1];
  s.frames = static_cast<const float*>(frames.data);
  return s;
}

std::vector<float> states_of(const core::PolicyConfig& config, std::int64_t batch,
                             const std::optional<StateTensors>& given) {
  std::vector<float> states;
  if (!given) return states;
  const std::vector<NamedParts> parts = named_parts(config.network);
  for (const auto& [given_name, view] : *given) {
    const std::string& name = given_name.name;
    if (std::any_of(parts.begin(), parts.end(),
                    [&name](const NamedParts& part) { return part.name == name; }))
      continue;
    fail(ErrorKind::invalid_argument, ":initial_state", ":initial_state must have the parts of a state, ",
         listed(parts), "; :", name, " is none of them");
  }
  const std::int64_t floats = config.state_floats();
  states.resize(static_cast<std::size_t>(core::checked_multiply(batch, floats, ":initial_state")));
  for (const NamedParts& part : parts) {
    const auto found = std::find_if(given->begin(), given->end(), [&part](const auto& tensor) {
      return std::get<0>(tensor).name == part.name;
    });
    if (found == given->end()) {
      fail(ErrorKind::invalid_argument, ":initial_state", ":initial_state must have the parts of a state, ",
           listed(parts), "; :", part.name, " is missing");
    }
    const core::TensorView& view = std::get<1>(*found);
    require_tensor(view, core::Dtype::f32, part.shape(batch), ":initial_state");
    for (std::int64_t b = 0; b < batch; ++b) {
      std::copy_n(static_cast<const float*>(view.data) + b * part.size(), part.size(),
                  states.data() + b * floats + part.at);
    }
  }
  return states;
}

std::vector<float> first_states(const core::PolicyConfig& config, std::int64_t batch) {
  std::vector<float> first(static_cast<std::size_t>(config.state_floats()));
  auto at = first.begin();
  for (const core::StatePart& part : config.network.states) {
    std::copy(part.initial.begin(), part.initial.end(), at);
    at += part.size();
  }
  std::vector<float> states;
  for (std::int64_t b = 0; b < batch; ++b) states.insert(states.end(), first.begin(), first.end());
  return states;
}

Term encode_states(Call& call, core::Backend& backend, const core::PolicyConfig& config, std::int64_t batch,
                   const std::vector<float>& states) {
  std::vector<Term> terms;
  for (const NamedParts& part : named_parts(config.network)) {
    F32Result tensor(call, backend, part.shape(batch), "frames");
    for (std::int64_t b = 0; b < batch; ++b) {
      std::copy_n(states.data() + b * config.state_floats() + part.at, part.size(),
                  tensor.floats() + b * part.size());
    }
    terms.push_back(enif_make_tuple2(call.env(), encode_atom(call, part.name.c_str()), tensor.tensor(call)));
  }
  return encode_list(call, terms);
}

}  // namespace exphil::nif
