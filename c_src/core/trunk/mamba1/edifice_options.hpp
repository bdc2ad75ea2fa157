// The options in a file with Edifice's names: Edifice's and ExPhil's build options, or the metadata of a
// file that this library wrote. Used by the loaders of this folder; one object per load.
#pragma once

#include <optional>
#include <string>

#include "core/trunk/mamba1/loaders.hpp"

namespace exphil::core::mamba1 {

inline constexpr const char* kMetadataPrefix = "exphil_native.";

// The architecture that Edifice names its layers after, by the names of the tensors; null where they show
// none that is known here. Others have the names of mamba too.
const char* architecture_by_names(const TensorMap& tensors);

bool has_prefix(const TensorMap& tensors, const std::string& prefix);

class EdificeOptions {
 public:
  // The file outlives this.
  explicit EdificeOptions(const Checkpoint& file) : file_(file) {}

  // Nothing where absent or nil. Throws invalid_checkpoint where it is neither a number nor a name.
  std::optional<std::string> option(const std::string& name) const;
  // Throws invalid_checkpoint where the option is present but not a count.
  std::optional<std::int64_t> count(const std::string& name) const;
  bool is_policy() const;  // an ExPhil policy, with heads
  // From the architecture or backbone; nothing where the file states none. Throws invalid_checkpoint for
  // unsupported ones, also where only the names of the tensors show it.
  std::optional<Dialect> dialect() const;
  // Everything but what the shapes determine. Throws invalid_argument where an option contradicts the file,
  // or where neither names the dialect.
  Spec spec(const PolicyLoadOptions& options) const;

 private:
  std::optional<std::string> metadata(const std::string& name) const;
  void require_mamba_by_names() const;
  [[noreturn]] void ask_for_dialect() const;

  const Checkpoint& file_;
};

}  // namespace exphil::core::mamba1
