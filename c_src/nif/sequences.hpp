// Sequences of frames and the states they begin and end with, as training's calls have them: arguments to
// what core/policy/gradient.hpp takes, and back. Used by training.cpp and trainer.cpp; pure functions.
#pragma once

#include <optional>
#include <vector>

#include "core/policy/gradient.hpp"
#include "nif/functions.hpp"

namespace exphil::nif {

// Uninitialised f32 of this shape, in the backend's memory for results.
class F32Result {
 public:
  F32Result(Call& call, core::Backend& backend, const core::Shape& shape, const char* argument)
      : shape_(shape),
        result_(call, backend,
                static_cast<std::size_t>(core::checked_multiply(shape.elements(argument), 4, argument))) {}
  float* floats() const { return result_.floats(); }
  Term tensor(Call& call) { return encode_tensor(call, core::Dtype::f32, shape_, result_.term()); }

 private:
  core::Shape shape_;
  Result result_;
};

// The values of the checkpoint's tensors, as [{name, tensor}].
Term encode_values(Call& call, core::Backend& backend, const core::PolicyWeights& weights,
                   const core::PolicyValues<float>& values);

// Throws invalid_argument where the frames are not {batch, seq, d_input}. least: the fewest of a sequence.
core::PolicySequences sequences_of(const core::PolicyConfig& config, const core::TensorView& frames,
                                   std::int64_t least);

// {batch, state_floats} of the caller's tensors, one for each name; empty where there are none.
std::vector<float> states_of(const core::PolicyConfig& config, std::int64_t batch,
                             const std::optional<StateTensors>& given);
// What `batch` new agents begin with.
std::vector<float> first_states(const core::PolicyConfig& config, std::int64_t batch);
// And back: [{name, tensor}].
Term encode_states(Call& call, core::Backend& backend, const core::PolicyConfig& config, std::int64_t batch,
                   const std::vector<float>& states);

}  // namespace exphil::nif
