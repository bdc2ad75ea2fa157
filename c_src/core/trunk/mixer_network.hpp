// The network of a policy with state-spaces' names whose layers are a norm, a mixer and a residual, apart
// from the mixers; and which tensor fills which weight. Used by the trunks of Mamba-2 and Mamba-3; one object
// per load.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/trunk/builder.hpp"
#include "core/trunk/state_spaces.hpp"

namespace exphil::core {

// A network, and the tensors that fill its weights.
struct MixerDescription {
  Network network;
  std::vector<PolicyParameter> parameters;
};

class MixerNetwork {
 public:
  explicit MixerNetwork(MixerEnds ends) : ends_(std::move(ends)) {}
  NetworkBuilder b;
  Network& n = b.network;

  VectorId vector(const char* name, std::int64_t size) { return b.vector(name, size); }
  Span all(VectorId id) const { return b.all(id); }

  // Before the layers' vectors and states.
  void begin();
  // The norm of the hidden vector.
  Block begin_layer(std::int64_t index);
  Span normed() const { return all(normed_); }
  // in_proj of what is normed, whose rows are those of `outs` one after another.
  void in_proj(const std::vector<Span>& outs, bool bias, Block* block);
  // Ends a layer with out_proj.
  void end_layer(const Span& in, bool bias, Block block);
  MixerDescription end();

  // A weight of the layer's mixer, {rows, columns}, and its tensor.
  WeightId weight(const std::string& name, std::int64_t rows, std::int64_t columns, const Shape& shape,
                  const char* axes);
  WeightId weight(const std::string& name, std::int64_t size, const char* axes) {
    return weight(name, 1, size, {size}, axes);
  }
  void add(const std::string& name, const Shape& shape, const char* axes, WeightId id) {
    parameters_.add(mixer_ + name, shape, axes, id);
  }
  const std::string& of() const { return of_; }  // "layer 0's "

 private:
  const MixerEnds ends_;
  StateSpacesParameters parameters_;
  VectorId normed_ = kNone;
  std::string of_, mixer_;  // of the layer
};

// Sizes of fresh policies: d_input, d_output, d_model and layers.
MixerEnds take_mixer_ends(SizeReader& sizes);
// Of d_model times expand (2) channels, headdim (64) of them each.
std::int64_t take_heads(SizeReader& sizes, std::int64_t d_model, std::int64_t* headdim);
// Throws invalid_argument where so many groups do not divide the heads.
void require_groups(std::int64_t groups, std::int64_t heads);
std::vector<float> initial_mixer_values(const PolicyParameter& tensor, const MixerEnds& ends,
                                        const Initializer& draw);
// The first values of a description: own(tensor) where the mixer's tensor begins otherwise than in PyTorch,
// as state-spaces/mamba has it, and the rest as PyTorch, but that out_proj is divided by sqrt(layers), norms
// and D are 1, and dt_bias is that of initial_dt_bias().
template <class Own>
std::vector<InitialTensor> initial_mixers(const MixerDescription& description, const MixerEnds& ends,
                                          const Initializer& draw, const Own& own) {
  require_weight_limit(description.parameters);
  std::vector<InitialTensor> made;
  for (const PolicyParameter& tensor : description.parameters) {
    std::optional<std::vector<float>> values = own(tensor);
    if (!values) values = initial_mixer_values(tensor, ends, draw);
    made.push_back({tensor.name, tensor.shape, std::move(*values), {}});
  }
  return made;
}

// The policy of a description, with the values of a file.
PolicyWeights read_mixers(const Checkpoint& file, CheckpointReader& reader, PolicyConfig config,
                          MixerDescription description);

}  // namespace exphil::core
