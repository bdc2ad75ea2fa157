// The fused recurrent operators: a row for each, with its cell and its inputs. Everything else about an
// operator follows from its row: shapes, the formulas (kernels/common/cells.cuh), what a backend computes.
//
//   operator     inputs                                   states
//   gru_scan     wx {batch, seq, 3 hidden}, r             h    gates r, z, n
//   lstm_scan    wx {batch, seq, 4 hidden}, r             h, c  gates i, f, g, o
//   mingru       gates, candidates                        h
//   minlstm      forget_gates, input_gates, candidates    h
//   elu_gru      gates, candidates                        h
//   real_gru     gates, candidates                        h    the same function as mingru
//   diag_linear  a, b                                     h
//   liquid       tau, activation                          h
//
// r is {hidden, gates hidden}: the sums of a dense cell are wx_t + h_(t-1) r. Every other input is {batch,
// seq, hidden}, and goes through the cell's own activations first, or has done so already (`activated`).
//
// The operators, their order of inputs and of gates are those of Edifice (lib/edifice/cuda/fused_scan.ex).
// gru_scan is h' = (1 - z) n + z h, as in Edifice's gru_scan and in its layers; the kernel of its gru_block
// computes h' = (1 - z) h + z n, and is not followed. Plain data; any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "kernels/common/cells.cuh"

namespace exphil::core {

enum class RecurrentOp : std::uint8_t {
  gru_scan,
  lstm_scan,
  mingru,
  minlstm,
  elu_gru,
  real_gru,
  diag_linear,
  liquid
};
inline constexpr std::size_t kRecurrentOps = static_cast<std::size_t>(RecurrentOp::liquid) + 1;
inline constexpr int kMaxRecurrentInputs = 3;

struct RecurrentRow {
  RecurrentOp op;
  const char* name;
  formulas::Cell cell;
  std::optional<formulas::Cell> activated;  // of inputs that have gone through the cell's activations
  std::array<const char*, kMaxRecurrentInputs> inputs;  // as calls name them; null beyond the last

  bool dense() const { return formulas::recurrent(cell); }
  int count() const { return inputs[2] != nullptr ? 3 : 2; }
};

const RecurrentRow& recurrent_row(RecurrentOp op);

}  // namespace exphil::core
