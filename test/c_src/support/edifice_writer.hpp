// Whole policies as Edifice and ExPhil save them, for tests and as seeds of the fuzz targets: the names and
// shapes of a small policy, and files of them in each form. Built from the parts in erlang_writer.hpp.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "support/erlang_writer.hpp"
#include "support/safetensors_writer.hpp"

namespace exphil::test::erlang {

using Options = std::vector<std::pair<std::string, Text>>;

struct Tensor {
  std::string layer, name;
  std::vector<std::int64_t> shape;
};

// One layer: E = 3, D = 4, I = 8, N = 2, K = 3, R = 1. The block's name decides between mamba and mamba_ssd.
std::vector<Tensor> trunk(const std::string& block = "mamba_block_1");

// The same with the heads of ExPhil's controller.
std::vector<Tensor> full_policy();

// A container of these tensors, all 0.5 but for `poison` ("layer.name"), which is NaN. Flag 1: compressed.
Text file_of(const std::vector<Tensor>& tensors, const Text& metadata, const std::string& poison = "",
             int flag = 0);

// A container of the tensors of a safetensors file: "a.b.c" is c in the map b in the layer a.
Text file_of(const SafetensorsWriter& tensors, const Text& metadata, int flag = 0);

// The older form of ExPhil: one term with the config and the tensors, all 0.5.
Text term_of(const std::vector<Tensor>& tensors, const Options& config);

// The metadata of a container: Edifice's spec, ExPhil's config.
Text spec(const char* arch, const Options& options);
Text config(const Options& options);

}  // namespace exphil::test::erlang
