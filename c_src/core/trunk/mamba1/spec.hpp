// The maths of a Mamba policy apart from its dimensions: one description for every dialect, which mamba1.cpp
// turns into phases: no executor knows a dialect. The dialects differ as follows
// (../shared/exphil/README.md has the maths):
//
//   state_spaces       RMSNorm, x_proj without biases, learned A and D, final norm, head of one linear map
//   edifice_mamba      LayerNorm, biases everywhere, dt clipped to [0.001, 0.1], A = -(1..N), no D,
//                      no final norm, B-bar = mean of dt over the channels times B
//                      (dt of the channel in its CUDA kernel)
//   edifice_mamba_ssd  the same, and for windows up to chunk_size h = A-bar (h + mean(dt) B x)
//
// Plain data.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>

#include "core/policy/network.hpp"
#include "core/trunk/load.hpp"

namespace exphil::core::mamba1 {

enum class Dialect { state_spaces, edifice_mamba, edifice_mamba_ssd };
// The dt that scales an input: that of its channel, or the mean of the activated dt over the frame's
// channels.
enum class InputDt { per_channel, mean };

const char* dialect_name(Dialect dialect);  // "state_spaces"
bool parse_dialect(const std::string& name, Dialect* dialect);
const char* dt_name(InputDt dt);  // "mean"
// As an option has them: ":edifice_mamba".
std::string value_text(Dialect dialect);
std::string value_text(InputDt dt);

struct Spec {
  Dialect dialect = Dialect::state_spaces;
  NormKind norm = NormKind::rms;
  bool input_projection = true;  // if false, a frame is the first layer's input: d_input == d_model
  bool final_norm = true;
  InputDt input_dt = InputDt::per_channel;
  float dt_min = -std::numeric_limits<float>::infinity();  // dt is clipped to this range after softplus
  float dt_max = std::numeric_limits<float>::infinity();
  // In sequences of 2 to chunk_size frames, each input
  // is decayed too: h = A-bar (h + dt B x). 0: never.
  std::int64_t chunk_size = 0;
  std::int64_t window = 0;  // frames of the windows it was trained on; 0 where unknown
};

// The options that this trunk has.
struct Options {
  std::optional<Dialect> dialect;
  std::optional<std::int64_t> chunk_size;
  std::optional<InputDt> input_dt;  // edifice_mamba only; the mean by default
};
// Throws invalid_argument for an option or a value that is not this trunk's.
Options read_options(const PolicyLoadOptions& options);

}  // namespace exphil::core::mamba1
