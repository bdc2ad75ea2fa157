// What the loaders of trunks that Edifice builds alike share: an input projection where the frame has another
// size than the layers, numbered layers, LayerNorms, ExPhil's heads. Used in core/trunk only; one object per
// load.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "core/trunk/builder.hpp"
#include "core/trunk/edifice.hpp"

namespace exphil::core {

class EdificeLoader {
 protected:
  // prefix: of the names of layers, "gru_". epsilon: of the norms, where nothing says otherwise. trunk: for
  // errors. The file outlives this.
  EdificeLoader(const Checkpoint& file, const PolicyLoadOptions& options, std::string prefix, float epsilon,
                const std::string& trunk);

  std::string layer_name(std::int64_t layer) const { return prefix_ + std::to_string(layer + 1); }

  // Sizes beside those of the trunk; after units_. Layers add to what the first one reads, so a frame that is
  // not projected has as many values.
  void infer_ends();

  void input();
  Norm norm(const std::string& name, const Span& in, const Span& out);
  // Its weight, and in the file name.kernel {in, out} and name.bias.
  Product dense(const std::string& name, const Span& in, const Span& out);
  void output(const std::string& norm_name);

  // The trunk adds its own facts and sizes of the state.
  PolicyConfig config(const char* trunk);
  // Reads every tensor. The network is in the config. fixed: weights that the trunk fixes, and their value.
  PolicyWeights read(PolicyConfig config, const std::vector<std::pair<WeightId, float>>& fixed = {});

  const Checkpoint& file_;
  const EdificeFile stated_;
  const TensorMap tensors_;
  CheckpointReader reader_;
  const std::string prefix_;
  const float epsilon_;
  const std::int64_t window_;
  bool projects_ = false;
  std::int64_t d_input_ = 0, units_ = 0, layers_ = 0;
  std::vector<HeadSize> heads_;
  std::int64_t d_output_ = 0;  // of a linear map; or 0
  NetworkBuilder b_;
  Network& n_ = b_.network;
  EdificeParameters parameters_;
  std::vector<ConstantTensor> constants_;

 private:
  bool has_layer(std::int64_t layer) const;
  void compare_with_build() const;
  TensorMap trained(const PolicyConfig& config) const;
};

}  // namespace exphil::core
