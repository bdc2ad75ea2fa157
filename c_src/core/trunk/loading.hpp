// What the loaders of all trunks share. Used in core/trunk/ only; pure functions.
#pragma once

#include <string>
#include <vector>

#include "core/checkpoint/reader.hpp"
#include "core/error.hpp"
#include "core/trunk/initial.hpp"
#include "core/trunk/load.hpp"

namespace exphil::core {

// One kind of layers. load.cpp has a table of all.
struct Trunk {
  const char* name;  // PolicyConfig::trunk
  // The architectures of Edifice, and the backbones of ExPhil's policies, that it reads.
  std::vector<std::string> architectures, backbones;
  // Whether a file without Edifice's names has this trunk's.
  bool (*has_names)(const TensorMap& tensors);
  PolicyWeights (*load)(const Checkpoint& file, const PolicyLoadOptions& options);
  // Fresh weights: d_input, d_output, d_model, layers and the trunk's own sizes.
  // Null: none are made.
  std::vector<InitialTensor> (*initial)(const std::string& trunk, SizeReader sizes, const Initializer& draw);
};
const std::vector<Trunk>& trunks();  // load.cpp

template <class... Parts>
[[noreturn]] void bad_checkpoint(const Parts&... parts) {
  fail(ErrorKind::invalid_checkpoint, "path", parts...);
}

// limit_exceeded where `size`, which tensor `name` defines, is beyond `limit`.
void require_limit(std::int64_t size, std::int64_t limit, const std::string& what, const std::string& name);
// The option takes precedence over the metadata, the metadata over the trunk's default.
float norm_epsilon(const Checkpoint& file, const PolicyLoadOptions& options, float otherwise = 1e-5f);
// identity: PolicyConfig::identity
std::uint64_t weights_fingerprint(const TensorMap& tensors, const std::vector<std::string>& identity);
// That of a file with the policy's parameters in f32.
std::uint64_t parameters_fingerprint(const PolicyWeights& policy);
// Throws for the first of the parameters that is missing or misshapen: before memory is taken for values
// whose sizes come from several tensors.
void require_parameters(const CheckpointReader& reader, const std::vector<PolicyParameter>& parameters);
// Puts every parameter into the values, and derives what follows from them. Throws for a tensor that is none
// of them, and for a value that is not finite, also of a weight that is derived, such as A = -exp(A_log).
void read_parameters(CheckpointReader& reader, PolicyWeights* policy);
// The same for values that are there already.
void check_parameters(const CheckpointReader& reader, PolicyWeights* policy);

}  // namespace exphil::core
