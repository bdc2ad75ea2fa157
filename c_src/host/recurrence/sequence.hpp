// One sequence of a selective scan in the form that the SIMD code reads: strided rows of x, dt, z, y and
// packed A. Callers: host/scan/scan.cpp (the operator) and host/policy/forward.cpp (a resident policy). Plain
// data, no ownership.
#pragma once

#include <cstdint>

#include "core/tensor.hpp"
#include "host/simd/simd.hpp"
#include "kernels/common/formulas.cuh"

namespace exphil::host {

// Common to all sequences of a call.
struct ScanRule {
  std::int64_t dim = 0, state = 0;
  core::Dtype dtype = core::Dtype::f32;  // of x, dt, z, y, and of b and c where they are real rows
  bool complex = false, full_matrix = false;
  formulas::Discretization discretization = formulas::Discretization::zoh;
  bool dt_softplus = false;
  float dt_min = 0, dt_max = 0;

  std::int64_t parts() const { return complex ? 2 : 1; }  // floats in a number of A, B, C, h
  // Floats of one block of kPanel channels: of h, and of a packed A.
  std::int64_t state_block() const { return state * parts() * kPanel; }
  std::int64_t a_block() const { return state_block() * (full_matrix ? state : 1); }
};

// Row t begins at data + t step elements. Running backwards is a negative step.
struct Rows {
  const void* data = nullptr;
  std::int64_t step = 0;
};

struct Projection {
  const void* data = nullptr;
  std::int64_t step = 0;    // elements from one time step to the next
  std::int64_t groups = 1;  // row t is {groups, state}
  bool constant = false;    // data is f32 panels, packed by pack_panels
};

struct ScanSequence {
  std::int64_t seq = 0;
  Rows x, dt, z;  // z.data may be null
  void* y = nullptr;
  std::int64_t y_step = 0;
  Projection b, c;
  // The largest |A| of each block, as packed (bounds_of), or null. The recurrence of real zoh then omits the
  // clamp of its exponential in tiles where no |A dt'| needs it. The bits are the same.
  const float* a_bounds = nullptr;
  const float* a_panels = nullptr;               // packed by pack_a
  const float *d = nullptr, *dt_bias = nullptr;  // {dim} or null
  // One f32 for each step that scales x in place of the channel's dt', or null. decays_input: each input
  // decays by its own step, h = Abar (h + dt' B x). Real zoh with shared B and C only (a resident policy).
  const float* input_dt = nullptr;
  bool decays_input = false;
  // Either the state is resident, {blocks, state, parts, kPanel}, read and written in place ...
  float* h_panels = nullptr;
  // ... or each step is another agent's, whose state is such panels: step t reads those at agents_from[t] +
  // agent_at and writes those at agents[t] + agent_at. Diagonal A only ...
  float* const* agents = nullptr;
  float* const* agents_from = nullptr;
  std::int64_t agent_at = 0;
  // ... or it is read from and written to {dim, state, parts}; null means zeros, and not written.
  const float* initial_state = nullptr;
  float* final_state = nullptr;
  float* states = nullptr;  // after step t at states + t states_step
  std::int64_t states_step = 0;
  // h before each tile of kTile steps, as panels: {blocks of this call, tiles, state, parts, kPanel}; or
  // null.
  float* checkpoints = nullptr;
};

// {dim, state, parts} -> {blocks, state, parts, kPanel}, zero padded. `to` holds panels(dim) blocks.
void pack_panels(const float* from, std::int64_t dim, std::int64_t row, float* to);
void unpack_panels(const float* from, std::int64_t dim, std::int64_t row, float* to);

// Packs the rule's A like pack_panels; for real zoh times log2(e), because the recurrence computes 2^w.
void pack_a(const ScanRule& rule, const float* a, float* to);

void bounds_of(const ScanRule& rule, const float* a_panels, float* bounds);

// Runs blocks [begin, end) of kPanel channels over the full sequence. Blocks are independent, so any split
// gives the same bits. Any thread, with its own scratch: scan_scratch_floats(rule) floats (tile.hpp), 64-byte
// aligned.
void scan_channels(const ScanRule& rule, const ScanSequence& sequence, std::int64_t begin, std::int64_t end,
                   float* scratch);

}  // namespace exphil::host
