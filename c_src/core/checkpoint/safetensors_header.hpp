// The JSON header of a safetensors file, parsed and checked on its own: no file, no tensor bytes. Used by
// safetensors.cpp. Pure functions; any thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/tensor.hpp"

namespace exphil::core {

struct SafetensorsEntry {
  std::string name;
  Dtype dtype = Dtype::f32;
  Shape shape;
  std::uint64_t begin = 0, end = 0;  // bytes, from the end of the header
};

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;  // in the order of their bytes
  std::map<std::string, std::string> metadata;
};

// Throws invalid_checkpoint unless `json` describes tensors that cover exactly `data_bytes` bytes, each once.
SafetensorsHeader parse_safetensors_header(const std::string& json, std::uint64_t data_bytes);

}  // namespace exphil::core
