// Writes a checkpoint of random weights, whose sizes keep the values of a layer near 1.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "support/numbers.hpp"
#include "support/safetensors_writer.hpp"

namespace exphil::test {

class RandomWriter {
 public:
  explicit RandomWriter(std::uint64_t seed) : random_(seed) {}
  SafetensorsWriter file;

  void matrix(const std::string& name, std::int64_t rows, std::int64_t columns, std::int64_t fan_in) {
    const float bound = 1.5f / std::sqrt(static_cast<float>(fan_in));
    file.add_f32(name, {rows, columns}, values(rows * columns, -bound, bound));
  }
  void vector(const std::string& name, std::int64_t size, float least = -0.5f, float most = 0.5f) {
    file.add_f32(name, {size}, values(size, least, most));
  }
  std::vector<float> values(std::int64_t count, float least, float most) {
    return random_.vector(static_cast<std::size_t>(count), least, most);
  }

  // Edifice's: {in, out}.
  void dense(const std::string& name, std::int64_t in, std::int64_t out) {
    matrix(name + ".kernel", in, out, in), vector(name + ".bias", out);
  }
  void norm(const std::string& name, std::int64_t size) {
    vector(name + ".gamma", size, 0.7f, 1.3f), vector(name + ".beta", size);
  }

 private:
  Random random_;
};

}  // namespace exphil::test
