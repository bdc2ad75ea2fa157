// From nothing to the weights of a policy that can be trained, whatever its trunk: the tensors of a
// checkpoint by name, which load_weights takes. The same sizes and seed give the same bits on every machine.
// Called by nif/ and the tests; pure functions, any thread.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/hash.hpp"
#include "core/philox.hpp"
#include "core/policy/parameters.hpp"
#include "core/tensor.hpp"

namespace exphil::core {

// A size by its name in Elixir: "d_input".
using NamedSizes = std::vector<std::pair<std::string, std::int64_t>>;

struct InitialTensor {
  std::string name;
  Shape shape;
  std::vector<float> values;
  std::vector<std::uint32_t> words;  // instead of values: a random key, which is no weight
  TensorView view() const;           // valid as long as this is
};

// The sizes d_input, d_output, d_model and layers, which every trunk has, and those of the trunk. Throws
// invalid_argument naming the size that is missing, unknown or not positive; limit_exceeded naming the one
// that is too large.
std::vector<InitialTensor> initial_weights(const std::string& trunk, const NamedSizes& sizes,
                                           std::uint64_t seed);

// Takes the sizes one by one. Used by the trunks.
class SizeReader {
 public:
  explicit SizeReader(NamedSizes sizes) : sizes_(std::move(sizes)) {}
  std::int64_t take(const std::string& name, std::int64_t limit);  // must be there
  std::int64_t take(const std::string& name, std::int64_t limit, std::int64_t otherwise);
  bool has(const std::string& name) const;
  void require_all_taken(const std::string& trunk) const;

 private:
  NamedSizes sizes_;
};

// The first value of every weight. A number depends on the seed, the tensor's name and its place in it, not
// on the other tensors. Used by the trunks.
class Initializer {
 public:
  explicit Initializer(std::uint64_t seed) : seed_(seed) {}

  static std::vector<float> constant(const Shape& shape, float value);
  // As Axon begins: ones for a norm's gamma, zeros for other vectors, and glorot_uniform for the rest, from
  // -bound to bound: bound = sqrt(6 / (in + out)) of a kernel {in, out}; of one with more dimensions, in and
  // out are the first two times all others.
  std::vector<float> as_axon(const std::string& name, const Shape& shape) const;
  // `count` random words.
  std::vector<std::uint32_t> words(const std::string& name, std::size_t count) const;
  // From -bound to bound, PyTorch's default for linear layers and convolutions with bound 1 / sqrt(fan_in).
  std::vector<float> uniform(const std::string& name, const Shape& shape, double bound) const;
  // value(u) with u from 0 to below 1.
  template <class Value>
  std::vector<float> drawn(const std::string& name, const Shape& shape, const Value& value) const {
    std::vector<float> values(static_cast<std::size_t>(shape.elements(name)));
    const std::uint64_t stream = hash64(name.data(), name.size());
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = static_cast<float>(value(double{uniform_at(seed_, stream, i)}));
    }
    return values;
  }

 private:
  std::uint64_t seed_;
};

// The bias of a dt for u from 0 to below 1: softplus of it is log-uniform from 0.001 to 0.1, as in
// state-spaces/mamba.
double initial_dt_bias(double u);

// Whether a tensor's name ends so.
bool ends_with(const std::string& name, const std::string& end);

// Throws limit_exceeded for more weights than 8 GB, before anything is allocated for them. Used by the
// trunks.
void require_weight_limit(const std::vector<PolicyParameter>& tensors);

}  // namespace exphil::core
