// How Edifice names GRU, LSTM, minGRU and minLSTM and their tensors, and the sizes that a file of one has.
// Used in core/trunk/gated only; pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/trunk/loading.hpp"
#include "kernels/common/cells.cuh"

namespace exphil::core::gated {

// Gates are in the order of kernels/common/cells.cuh.
struct Names {
  const char* architecture;
  formulas::Cell cell;
  std::vector<const char*> gates;  // "r" of gru_1.input_kernel.wir; min_gru_1_"gate"
};
const std::vector<Names>& all_names();
// Of one of these architectures. A pointer, because compilers take a reference for one into the argument.
const Names* names_of(const std::string& architecture);

struct Sizes {
  bool fused = false;     // Edifice's layout for fused kernels
  bool projects = false;  // the frame goes through an input projection
  std::int64_t d_input = 0, units = 0, layers = 0;
  std::int64_t gates = 0;  // rows of the sums of all gates
};
// Throws invalid_checkpoint or limit_exceeded, naming the tensor.
Sizes sizes_of(const Names& names, const TensorMap& tensors, const CheckpointReader& reader);

// "gru_1", ...
std::string layer_name(const Names& names, std::int64_t layer);

}  // namespace exphil::core::gated
