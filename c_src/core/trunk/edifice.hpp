// Files with the names of Edifice and ExPhil, whatever the trunk: what they state in their build options or,
// where mix exphil.convert wrote them, in their metadata, and ExPhil's heads. Used in core/trunk only; one
// object per load.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/trunk/builder.hpp"
#include "core/trunk/loading.hpp"

namespace exphil::core {

// By its format, else by its tensors or metadata.
bool has_edifices_names(const Checkpoint& file);

bool has_prefix(const TensorMap& tensors, const std::string& prefix);

// One of ExPhil's heads: out relu(hidden x + hidden_bias) + out_bias.
struct HeadSize {
  std::string name;
  std::int64_t width = 0, count = 0;
};

// One group of outputs for each head, one after another. That of the buttons is binary.
std::vector<OutputGroup> groups_of(const std::vector<HeadSize>& heads);

// How many outputs the linear map `head` has, which Policy.init gives a policy without heads; 0 without one.
std::int64_t linear_outputs(const CheckpointReader& reader, const TensorMap& tensors,
                            const std::vector<HeadSize>& heads);

// Lists which tensor fills which weight.
class EdificeParameters {
 public:
  std::vector<PolicyParameter> all;

  // `name` fills the weight from its value `first` on; nothing where there is no such weight. Matrices are
  // {in, out} in the file.
  void add(const std::string& name, const Shape& shape, const char* axes, WeightId weight,
           std::int64_t first = 0);
  // Each head fills rows of the hidden layers, and a block of the outputs.
  void add_heads(const std::vector<HeadSize>& heads, std::int64_t d_model, const NetworkBuilder::Head& ids);
  // What answers, with its phases: the heads; without any a linear map `head` to d_output values; where that
  // is 0 too, `in` itself.
  void add_outputs(const Span& in, const std::vector<HeadSize>& heads, std::int64_t d_output,
                   NetworkBuilder* builder);
};

// A value of the file or of an option, in an error. Trunks with options of their own types have more.
std::string value_text(std::int64_t value);
std::string value_text(float value);
std::string value_text(bool value);

// The file's value, else the option's; a contradiction is an invalid argument.
template <class T>
std::optional<T> agree(const std::optional<T>& file, const std::optional<T>& option, const char* name) {
  if (file && option && *file != *option) {
    fail(ErrorKind::invalid_argument, name, name, " is ", value_text(*option), ", but the file says ",
         value_text(*file));
  }
  return file ? file : option;
}

class EdificeFile {
 public:
  // The file outlives this.
  explicit EdificeFile(const Checkpoint& file) : file_(file) {}

  // Nothing where absent or nil. Throws invalid_checkpoint where it is neither a number nor a name.
  std::optional<std::string> option(const std::string& name) const;
  // Throws invalid_checkpoint where the option is present but not a count.
  std::optional<std::int64_t> count(const std::string& name) const;
  bool has_build() const { return file_.build().has_value(); }
  bool is_policy() const;  // an ExPhil policy, with heads
  // The backbone of a policy, else the architecture. Without build options it is what the names of the
  // tensors show, and empty where they show none that is known here.
  std::string architecture() const;
  // Throws: the file's architecture is not among those that are read.
  [[noreturn]] void refuse(const std::string& architecture, const std::vector<std::string>& read) const;

  // Without what has no effect on inference. Throws invalid_checkpoint for learned embeddings, and for a
  // policy of single frames.
  TensorMap relevant() const;
  // All six heads, in the order of ExPhil's logits, or none.
  std::vector<HeadSize> heads(const CheckpointReader& reader, const TensorMap& tensors) const;
  // Frames of the windows that it was trained on, by the file or the option; 0 where unknown.
  std::int64_t window(const PolicyLoadOptions& options) const;
  // Throws invalid_checkpoint where the build options state another size. `added`: the option leaves out
  // these.
  void compare(const char* name, std::int64_t size, std::int64_t added = 0) const;
  void compare_ends(std::int64_t d_input, const std::vector<HeadSize>& heads) const;

 private:
  const Checkpoint& file_;
};

}  // namespace exphil::core
