// What a gated trunk is made of, by its sizes: the network, which tensor fills which weight, and the random
// keys from which states begin. Used in core/trunk/gated only: by the loader, and by what makes fresh
// weights. Pure functions; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/trunk/edifice.hpp"
#include "kernels/common/cells.cuh"

namespace exphil::core::gated {

// How Edifice names a cell and its tensors. Gates are in the order of kernels/common/cells.cuh.
struct Names {
  const char* architecture;
  formulas::Cell cell;
  std::vector<const char*> gates;  // "r" of gru_1.input_kernel.wir; min_gru_1_"gate"

  bool recurrent() const { return formulas::recurrent(cell); }
  // Edifice's norms of GRU and LSTM have an epsilon of their own.
  float default_epsilon() const { return recurrent() ? 1e-6f : 1e-5f; }
  // "gru_1", ...; layers count from 0 here
  std::string layer(std::int64_t layer) const;
};

const std::vector<Names>& all_names();
// The architecture is one of them.
const Names* names_of(const std::string& architecture);

struct Sizes {
  const Names* names = nullptr;
  bool fused = false;     // the layout of Edifice's fused kernels
  bool projects = false;  // minGRU and minLSTM: input_projection, where d_input is not units
  std::int64_t d_input = 0, units = 0, layers = 0;
  std::vector<HeadSize> heads;  // ExPhil's, or none
  std::int64_t d_output = 0;    // of one linear map, `head`; 0 where there is none
  float epsilon = 0;

  std::int64_t gates() const { return formulas::gates_of(names->cell) * units; }
};

struct Description {
  Network network;
  std::vector<PolicyParameter> parameters;
  // For each layer the keys of its rows of state, h and then c; empty where states begin with zeros.
  std::vector<std::vector<std::string>> keys;
};
Description describe(const Sizes& sizes);

}  // namespace exphil::core::gated
