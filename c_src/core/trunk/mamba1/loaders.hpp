// The loaders of Mamba's two namings, and what they share. Used by core/trunk/load.cpp.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/trunk/loading.hpp"
#include "core/trunk/mamba1/mamba1.hpp"

namespace exphil::core::mamba1 {

PolicyWeights load_state_spaces(const Checkpoint& file, const PolicyLoadOptions& options);

// Whether the file has Edifice's names: by its build options, else by those of its tensors.
bool is_edifice(const Checkpoint& file);
PolicyWeights load_edifice(const Checkpoint& file, const PolicyLoadOptions& options);

// The options that this trunk has.
struct Options {
  std::optional<Dialect> dialect;
  std::optional<std::int64_t> chunk_size;
  std::optional<InputDt> input_dt;  // edifice_mamba only; the mean by default
};
// Throws invalid_argument for an option or a value that is not this trunk's.
Options read_options(const PolicyLoadOptions& options);

// What affects a state beside the tensors: PolicyConfig::identity.
std::vector<std::string> identity_of(const Config& config);

// Reads tensors into the vectors of `weights` and lists them there. The numbers of layers and heads must be
// set before the first.
class TensorReader {
 public:
  TensorReader(CheckpointReader& reader, Weights* weights);

  // Appends the tensor to `to`, one of the vectors of the weights.
  void take(const std::string& name, const Shape& shape, const char* axes, Values& to,
            bool transposed = false);

 private:
  CheckpointReader& reader_;
  Weights& weights_;
  std::map<const Values*, std::size_t> vectors_;  // the place of each in vectors_of
};

}  // namespace exphil::core::mamba1
