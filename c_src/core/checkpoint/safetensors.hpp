// Reads a safetensors file (github.com/huggingface/safetensors, README "Format"): 8 bytes of little-endian
// header length, a JSON header, then the tensors' bytes. The header is checked in full before the bytes are
// read, and the bytes are read rather than mapped: a training run that overwrites the file in place would
// otherwise end the VM with SIGBUS. Immutable; safe to share while the object lives. Views may be unaligned:
// copy, do not cast.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "core/tensor.hpp"

namespace exphil::core {

class File;

class Safetensors {
 public:
  // Throws file_error where the file cannot be read, invalid_checkpoint where it is malformed (truncated,
  // header beyond the file, offsets that overlap, leave gaps or exceed the file, duplicate names, size and
  // shape that disagree, unknown dtype).
  static Safetensors open(const std::string& path);
  static Safetensors read(File& file);  // one that nothing was read of

  Safetensors(Safetensors&&) noexcept;
  Safetensors& operator=(Safetensors&&) noexcept;
  ~Safetensors();

  const std::string& path() const;
  const std::map<std::string, TensorView>& tensors() const;    // by name
  const std::map<std::string, std::string>& metadata() const;  // __metadata__
  const TensorView* find(const std::string& name) const;       // null where absent

 private:
  struct Contents;
  explicit Safetensors(std::unique_ptr<Contents> contents);
  std::unique_ptr<Contents> contents_;
};

}  // namespace exphil::core
