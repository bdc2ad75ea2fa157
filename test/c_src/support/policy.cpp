#include "support/policy.hpp"

#include <cmath>
#include <utility>

#include "support/numbers.hpp"

namespace exphil::test {

namespace {

using Values = std::vector<float>;

class PolicyWriter {
 public:
  explicit PolicyWriter(const PolicySpec& spec) : s_(spec), random_(spec.seed) {}

  SafetensorsWriter write() {
    linear("input_proj", s_.d_model, s_.d_input, true);
    for (std::int64_t layer = 0; layer < s_.n_layer; ++layer) {
      write_layer(s_.prefix + "layers." + std::to_string(layer) + ".");
    }
    around_one(s_.prefix + "norm_f.weight", s_.d_model);
    linear("head", s_.d_output, s_.d_model, true);
    return std::move(out_);
  }

 private:
  void write_layer(const std::string& name) {
    const std::string mixer = name + "mixer.";
    around_one(name + "norm.weight", s_.d_model);
    linear(mixer + "in_proj", 2 * s_.d_inner, s_.d_model, s_.projection_bias);
    uniform(mixer + "conv1d.weight", {s_.d_inner, 1, s_.d_conv}, 0.5f);
    if (s_.conv_bias) uniform(mixer + "conv1d.bias", {s_.d_inner}, 0.5f);
    linear(mixer + "x_proj", s_.dt_rank + 2 * s_.d_state, s_.d_inner, false);
    uniform(mixer + "dt_proj.weight", {s_.d_inner, s_.dt_rank}, 0.5f);
    out_.add_f32(mixer + "dt_proj.bias", {s_.d_inner}, random_.vector(size(s_.d_inner), -4.0f, -1.0f));
    Values a_log;
    for (std::int64_t d = 0; d < s_.d_inner; ++d) {
      for (std::int64_t n = 0; n < s_.d_state; ++n) {
        a_log.push_back(std::log(static_cast<float>(n + 1)) + random_.uniform(-0.1f, 0.1f));
      }
    }
    out_.add_f32(mixer + "A_log", {s_.d_inner, s_.d_state}, a_log);
    around_one(mixer + "D", s_.d_inner);
    linear(mixer + "out_proj", s_.d_model, s_.d_inner, s_.projection_bias);
  }

  void linear(const std::string& name, std::int64_t rows, std::int64_t columns, bool bias) {
    const float bound = 1.0f / std::sqrt(static_cast<float>(columns));
    uniform(name + ".weight", {rows, columns}, bound);
    if (bias) uniform(name + ".bias", {rows}, bound);
  }

  void uniform(const std::string& name, std::vector<std::int64_t> shape, float bound) {
    std::int64_t count = 1;
    for (std::int64_t dim : shape) count *= dim;
    out_.add_f32(name, std::move(shape), random_.vector(size(count), -bound, bound));
  }

  void around_one(const std::string& name, std::int64_t count) {
    out_.add_f32(name, {count}, random_.vector(size(count), 0.8f, 1.2f));
  }

  static std::size_t size(std::int64_t count) { return static_cast<std::size_t>(count); }

  PolicySpec s_;
  Random random_;
  SafetensorsWriter out_;
};

}  // namespace

SafetensorsWriter policy_file(const PolicySpec& spec) {
  return PolicyWriter(spec).write();
}

std::shared_ptr<const core::PolicyWeights> load_policy(const SafetensorsWriter& file,
                                                       const core::PolicyLoadOptions& options) {
  const TemporaryFile written(file.bytes());
  return core::load_weights(core::Checkpoint::open(written.path()), options);
}

std::shared_ptr<const core::PolicyWeights> make_policy(const PolicySpec& spec) {
  return load_policy(policy_file(spec));
}

}  // namespace exphil::test
