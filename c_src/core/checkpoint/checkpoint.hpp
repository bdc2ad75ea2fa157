// A policy file in any format that this library reads, detected by content:
//   safetensors            8 bytes of header length, then '{'
//   Edifice's .nx          first byte 0, or 1 where the tensors are one zlib stream
//   ExPhil's .bin          the same container, or (older) one external term: first byte 131
// Used by load_weights. Immutable; safe to share while the object lives. Views may be unaligned.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "core/checkpoint/nx_tensors.hpp"
#include "core/tensor.hpp"

namespace exphil::core {

// The architecture and build options that Edifice or ExPhil saved with
// the tensors. Values are text: numbers in decimal, atoms by their
// spelling ("true", "nil", "mamba"). Of an option that is neither, `others` says what it is ("a list").
struct BuildOptions {
  std::string arch;
  std::map<std::string, std::string> values;
  std::map<std::string, const char*> others;
};

class File;

class Checkpoint {
 public:
  enum class Format { safetensors, container, term };

  // Opens the file once and reads each byte of it once. Throws file_error where the file cannot be read,
  // invalid_checkpoint where it is malformed.
  static Checkpoint open(const std::string& path);
  // Of tensors that the caller keeps, as a safetensors file would have them.
  static Checkpoint of(TensorMap tensors, std::map<std::string, std::string> metadata);
  Checkpoint(Checkpoint&&) noexcept;
  ~Checkpoint();

  const std::string& path() const;  // empty where it is no file
  std::string name() const;         // for messages: the quoted path, or "the weights"
  Format format() const;
  const TensorMap& tensors() const;  // "layer.name" in the formats of Edifice and ExPhil
  const std::map<std::string, std::string>& metadata() const;  // __metadata__ of safetensors
  const std::optional<BuildOptions>& build() const;            // of the other formats, where present

 private:
  struct Contents;
  explicit Checkpoint(std::unique_ptr<Contents> contents);
  static std::unique_ptr<Contents> read_container(File& file);
  static void read_term(std::uint64_t size, Contents* contents);
  static void read_parts(std::uint64_t size, Contents* contents);
  std::unique_ptr<Contents> contents_;
};

}  // namespace exphil::core
