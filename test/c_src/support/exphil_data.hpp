// Names and reads the policies and expected outputs in the shared folder exphil/.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/trunk/load.hpp"
#include "support/shared_data.hpp"

namespace exphil::test {

// One policy: the files that hold it, and its golden file.
struct ExphilSet {
  const char* name;
  std::vector<const char*> files;
  const char* golden;
  const char* outputs;  // "hidden" or "logits": prefix of the names of its expected outputs
};

inline std::vector<ExphilSet> exphil_sets() {
  return {{"mamba", {"edifice_mamba/mamba.nx"}, "edifice_mamba/golden.safetensors", "hidden"},
          {"mamba_ssd",
           {"edifice_mamba2/mamba_ssd_compressed.nx", "edifice_mamba2/mamba_ssd.safetensors"},
           "edifice_mamba2/golden.safetensors",
           "hidden"},
          {"short_window",
           {"edifice_mamba2/short_window.nx", "edifice_mamba2/short_window_utf8_atoms.nx"},
           "edifice_mamba2/short_window_golden.safetensors",
           "hidden"},
          {"policy", {"exphil_policy/policy.bin"}, "exphil_policy/golden.safetensors", "logits"},
          {"policy_old_term",
           {"exphil_policy/policy_old_term.bin", "exphil_policy/policy_old_term_utf8_atoms.bin"},
           "exphil_policy/policy_old_term_golden.safetensors",
           "logits"}};
}

inline bool have_exphil() {
  return have_shared("exphil/exphil_policy/policy.bin");
}

inline std::string exphil_path(const std::string& name) {
  return shared_path("exphil/" + name);
}

// The safetensors export contains neither its dialect nor its window: they are options.
inline std::shared_ptr<const core::PolicyWeights> exphil_policy(const std::string& name,
                                                                core::PolicyLoadOptions options = {}) {
  if (name.find(".safetensors") != std::string::npos) {
    options.trunk.emplace_back("dialect", "edifice_mamba_ssd");
    options.window = 60;
  }
  return core::load_weights(core::Checkpoint::open(exphil_path(name)), options);
}

inline std::vector<float> exphil_frames() {
  return read_f32(exphil_path("frames600.safetensors"), "obs");
}

}  // namespace exphil::test
