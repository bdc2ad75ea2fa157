// Writes safetensors files for tests: valid ones deterministically, and broken ones from raw parts.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/tensor.hpp"

namespace exphil::test {

using Bytes = std::vector<std::uint8_t>;

class SafetensorsWriter {
 public:
  struct Tensor {
    std::string dtype;  // "F32"
    std::vector<std::int64_t> shape;
    Bytes data;
  };

  // By name; may be changed before bytes().
  std::map<std::string, Tensor> tensors;
  std::map<std::string, std::string> metadata;

  void add_f32(const std::string& name, std::vector<std::int64_t> shape, const std::vector<float>& values);
  void add_bf16(const std::string& name, std::vector<std::int64_t> shape, const std::vector<float>& values);

  Bytes bytes() const;
};

// 8 bytes of length, the header as given, the data as given.
Bytes raw_safetensors(const std::string& header, const Bytes& data);

// A file in the system's temporary folder, removed with the object.
class TemporaryFile {
 public:
  explicit TemporaryFile(const Bytes& bytes);
  ~TemporaryFile();
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  void rewrite(const Bytes& bytes) const;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace exphil::test
