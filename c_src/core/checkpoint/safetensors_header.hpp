// The JSON header of a safetensors file, parsed and checked without the file or the tensor bytes. Used by
// safetensors.cpp. Pure functions; any thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/tensor.hpp"

namespace exphil::core {

// A header beyond these limits is refused. They bound the cost of parsing: the largest policy that loads has
// 14,000 tensors and a header of 3 MB.
inline constexpr std::size_t kMaxHeaderBytes = std::size_t{32} << 20;
inline constexpr std::size_t kMaxHeaderEntries = std::size_t{1}
                                                 << 16;               // tensors, and entries of __metadata__
inline constexpr std::size_t kMaxHeaderName = 1024;                   // bytes of a name
inline constexpr std::size_t kMaxHeaderToken = std::size_t{1} << 20;  // bytes of a string or a run of blanks

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

// Throws invalid_checkpoint unless `json` describes tensors that cover exactly `data_bytes` bytes, each once,
// within the limits above. Stops at the first invalid element. Takes O(n log n) time in the bytes of `json`
// and memory in proportion to its entries.
SafetensorsHeader parse_safetensors_header(std::string_view json, std::uint64_t data_bytes);

}  // namespace exphil::core
