// How policy_step (policy/step.cu) divides a network among the blocks of a team: where each vector is, and
// which part of each product a block computes. All of it follows from the network's lists. Constexpr over a
// value of Network, so one definition serves the kernel and c_src/cuda/policy.
#pragma once

#include "kernels/policy/team_channels.cuh"

namespace exphil {
namespace policy {

// Where a vector is in a team.
enum class Place : int {
  none,    // nowhere: a product passes it on in a register, or it is the policy's answer
  board,   // all of it in every block, which the blocks push their parts to
  own,     // each block has its own channels
  common,  // all of it in every block, which computes it alone
  heads,   // each block has what belongs to the heads of its channels, and computes it alone
};

// How a product is divided.
enum class Split : int {
  rows,   // of a vector on the board: each block has some of the rows
  depth,  // of a vector of which each block has its channels: every block adds up all blocks' segment sums
  own,    // short, of a vector that every block has: each block has the rows of its own channels
};

// What follows from the network's lists alone. A vector that some phase reads channel by channel is divided
// among the blocks; one that only products read is on the board.
struct TeamPlan {
  bool fits = true;  // policy_step has all that the network asks for
  Place places[kMostVectors] = {};
  Split splits[kMostPhases] = {};         // of the products
  int convolution_of[kMostVectors] = {};  // the only reader, which a product hands it to; -1: none
  int parts_of[kMostVectors] = {};        // the product, divided by depth, that writes it; -1: none
  int mean_of[kMostVectors] = {};         // of a mean's output: what it is the mean of; -1: none
  bool has_mean[kMostVectors] = {};       // a mean reads it: its segments' sums are on the board

  constexpr explicit TeamPlan(const Network& n) {
    for (int v = 0; v < kMostVectors; ++v) convolution_of[v] = parts_of[v] = mean_of[v] = -1;
    Readers readers[kMostVectors] = {};
    find_readers(n, n.input, readers);
    find_readers(n, n.layer, readers);
    find_readers(n, n.output, readers);
    for (int v = 0; v < kMostVectors; ++v) {
      const Readers& r = readers[v];
      if (r.channels + r.means > 0) {
        places[v] = Place::own;
      } else if (r.products + r.whole > 0) {
        places[v] = Place::board;
      }
    }
    places[n.frame] = places[n.hidden] = Place::board;
    for (int i = 0; i < n.layer.count; ++i) place_heads(n, n.layer.phases[i]);
    for (int p = 0; p < kMostPhases; ++p) divide(n, p, readers);
    for (int i = 0; i < n.layer.count; ++i) {
      if (n.layer.phases[i].kind == Kind::cell) fits = fits && cell_fits(n, i, readers);
      if (n.layer.phases[i].kind == Kind::heads) fits = fits && heads_fit(n.heads[n.layer.phases[i].index]);
      if (n.layer.phases[i].kind == Kind::gate) fits = fits && gate_fits(n.gates[n.layer.phases[i].index]);
      fits = fits && rotation_fits(n, n.layer.phases[i]);
    }
    if (n.heads[0].delta()) fits = fits && !sums_parts();
  }

  constexpr bool on_board(int vector) const { return places[vector] == Place::board; }

 private:
  struct Readers {
    int products = 0;  // long ones
    int whole = 0;     // other phases that need all of it
    int channels = 0, means = 0;
    int delays = 0;  // which read what a block has
    int convolution = -1;
  };
  constexpr void find_readers(const Network& n, const Block& block, Readers* readers) {
    for (int i = 0; i < block.count; ++i) {
      const int at = block.phases[i].index;
      if (block.phases[i].kind == Kind::product) {
        const Product& p = n.products[at];
        if (p.is_short) {
          ++readers[p.in].whole;
        } else {
          ++readers[p.in].products;
        }
      } else if (block.phases[i].kind == Kind::convolution) {
        ++readers[n.convolutions[at].in].channels;
        readers[n.convolutions[at].in].convolution = at;
      } else if (block.phases[i].kind == Kind::mean) {
        ++readers[n.means[at].in].means;
        has_mean[n.means[at].in] = true;
        mean_of[n.means[at].out] = n.means[at].in;
      } else if (block.phases[i].kind == Kind::cell) {
        const GatedCell& cell = n.cells[at];
        for (int gate = 0; gate < formulas::gates_of(cell.cell); ++gate) {
          ++readers[cell.x[gate]].channels;
          if (formulas::recurrent(cell.cell)) ++readers[cell.h[gate]].channels;
        }
      } else if (block.phases[i].kind == Kind::heads) {
        const Heads& h = n.heads[at];
        ++readers[h.value].channels;
        if (h.z != kNoVector) ++readers[h.z].channels;
        ++readers[h.key].whole, ++readers[h.query].whole;
        ++(h.delta() ? readers[h.rate].channels : readers[h.rate].whole);
        if (h.delta()) ++readers[h.decays].whole;
        if (h.trapezoid()) {
          ++readers[h.value_before].channels;
          ++readers[h.key_before].whole, ++readers[h.a].whole, ++readers[h.mix].whole;
        }
      } else if (block.phases[i].kind == Kind::gate) {
        const Gate& g = n.gates[at];
        ++readers[g.in].whole;
        if (g.gate != kNoVector) ++readers[g.gate].whole;
      } else if (block.phases[i].kind == Kind::angle) {
        ++readers[n.angles[at].rate].whole, ++readers[n.angles[at].dt].whole;
      } else if (block.phases[i].kind == Kind::rotation) {
        ++readers[n.rotations[at].in].whole, ++readers[n.rotations[at].turn].whole;
      } else if (block.phases[i].kind == Kind::delay) {
        ++readers[n.delays[at].in].delays;
      } else {
        const Scan& s = n.scans[at];
        ++readers[s.x].channels, ++readers[s.dt].channels, ++readers[s.z].channels;
        ++readers[s.b].whole, ++readers[s.c].whole;
      }
    }
  }
  // Heads of which each block has values, and every block what those share.
  constexpr bool heads_fit(const Heads& heads) const {
    const bool gated = heads.z == kNoVector || places[heads.z] == Place::own;
    const Place keys = heads.trapezoid() ? Place::heads : Place::board;
    bool shared = places[heads.key] == keys && places[heads.query] == keys;
    shared = shared && (heads.delta() ? places[heads.rate] == Place::own && on_board(heads.decays)
                                      : on_board(heads.rate));
    if (heads.trapezoid()) {
      shared = shared && places[heads.key_before] == keys && places[heads.value_before] == Place::own &&
               on_board(heads.a) && on_board(heads.mix);
    }
    return gated && shared && places[heads.value] == Place::own && on_board(heads.out);
  }
  // Whether blocks add up what they have of a vector.
  constexpr bool sums_parts() const {
    bool any = false;
    for (int v = 0; v < kMostVectors; ++v) any = any || has_mean[v] || parts_of[v] >= 0;
    return any;
  }
  // What is computed for each head: keys, queries, their angles, and the keys of the frame before.
  constexpr void place_heads(const Network& n, const Phase& phase) {
    if (phase.kind == Kind::angle) places[n.angles[phase.index].out] = Place::heads;
    if (phase.kind == Kind::rotation) places[n.rotations[phase.index].out] = Place::heads;
    if (phase.kind != Kind::delay) return;
    const Delay& delay = n.delays[phase.index];
    if (delay.out == n.heads[0].key_before) places[delay.out] = Place::heads;
  }
  // They need all of what is on the board, and a delay what the block has itself.
  constexpr bool rotation_fits(const Network& n, const Phase& phase) const {
    if (phase.kind == Kind::angle) {
      const Angle& angle = n.angles[phase.index];
      return on_board(angle.rate) && on_board(angle.dt) && angle.heads == n.heads[0].heads;
    }
    if (phase.kind == Kind::rotation) {
      const Rotation& rotation = n.rotations[phase.index];
      return on_board(rotation.in) && places[rotation.turn] == Place::heads &&
             rotation.heads == n.heads[0].heads;
    }
    if (phase.kind != Kind::delay) return true;
    const Delay& delay = n.delays[phase.index];
    return places[delay.in] == places[delay.out] &&
           (places[delay.in] == Place::own || places[delay.in] == Place::heads);
  }
  // Every block computes it from the boards.
  constexpr bool gate_fits(const Gate& gate) const {
    return on_board(gate.in) && on_board(gate.out) && (gate.gate == kNoVector || on_board(gate.gate));
  }
  // A cell, phase `at` of a layer, that directly follows products of vectors on the board, of which it alone
  // reads the outputs; but for a layer's first product, which may not read the cell's state.
  constexpr bool cell_fits(const Network& n, int at, const Readers* readers) const {
    const GatedCell& cell = n.cells[n.layer.phases[at].index];
    bool all = at > 0 && n.layer.phases[at - 1].kind == Kind::product && on_board(cell.out);
    all = all && (cell.before == kNoVector ||
                  (on_board(cell.before) && n.products[n.layer.phases[0].index].in != cell.before));
    for (int gate = 0; gate < formulas::gates_of(cell.cell); ++gate) {
      all = all && gate_fits(n, cell.x[gate], readers);
      all = all && (!formulas::recurrent(cell.cell) || gate_fits(n, cell.h[gate], readers));
    }
    for (const Product& p : n.products) all = all && (p.in != cell.before || all_gates(n, p));
    return all;
  }
  static constexpr bool all_gates(const Network& n, const Product& p) {
    bool all = true;
    for (int o = 0; o < p.outputs; ++o) all = all && is_gate(n, p.out[o].vector);
    return all;
  }
  constexpr bool gate_fits(const Network& n, int vector, const Readers* readers) const {
    const Readers& r = readers[vector];
    if (r.channels != 1 || r.products + r.whole + r.means > 0) return false;
    for (int p = 0; p < kMostPhases; ++p) {
      for (int o = 0; o < n.products[p].outputs; ++o) {
        if (n.products[p].out[o].vector == vector) return splits[p] == Split::rows;
      }
    }
    return false;
  }
  constexpr void divide(const Network& n, int product, const Readers* readers) {
    const Product& p = n.products[product];
    if (p.outputs == 0) return;
    splits[product] = p.is_short ? Split::own : places[p.in] == Place::own ? Split::depth : Split::rows;
    for (int o = 0; o < p.outputs; ++o) {
      const int v = p.out[o].vector;
      const Readers& r = readers[v];
      if (splits[product] == Split::depth) places[v] = Place::common, parts_of[v] = product;
      const bool one = r.channels == 1 && r.means == 0 && r.products == 0 && r.whole == 0;
      if (splits[product] != Split::rows || !one || r.convolution < 0) continue;
      places[v] = Place::none, convolution_of[v] = r.convolution;
    }
  }
};

// ---- the rows of a product in one block ----

// Of one output: of a vector that is handed to a convolution or kept, the block's channels; of one on the
// board or of the answer, an equal share of the rows.
constexpr bool by_channel(const TeamPlan& plan, int vector) {
  return plan.places[vector] == Place::own || plan.convolution_of[vector] >= 0;
}
constexpr int block_rows(const Network& n, const TeamPlan& plan, int team, int vector) {
  return by_channel(plan, vector) ? own_channels(n, team, vector) : divide_up(n.size(vector), team);
}
// Of the first `outputs` outputs.
constexpr int block_rows(const Network& n, const TeamPlan& plan, int team, const Product& p, int outputs) {
  int rows = 0;
  for (int o = 0; o < outputs; ++o) rows += block_rows(n, plan, team, p.out[o].vector);
  return rows;
}
// Rows of a product's weights in a block, and how many weights each has.
constexpr int weight_rows(const Network& n, const TeamPlan& plan, int team, int product) {
  const Product& p = n.products[product];
  return plan.splits[product] == Split::depth ? n.rows(p) : block_rows(n, plan, team, p, p.outputs);
}
constexpr int weight_columns(const Network& n, const TeamPlan& plan, int team, int product) {
  const int in = n.products[product].diagonal ? 0 : n.size(n.products[product].in);
  return plan.splits[product] == Split::depth ? own_channels(in, team) : in;
}

// Blocks of a team of which each has a segment of some vector, or fewer channels where those are its parts.
constexpr int useful_team(const Network& n, const TeamPlan& plan) {
  int segments = n.size(n.hidden) / kSegment;
  bool any = false;
  for (int v = 0; v < kMostVectors; ++v) {
    if (plan.places[v] != Place::own) continue;
    const int part = is_gate(n, v) ? 8 : n.heads[0].delta() ? kDeltaChannels : kSegment;
    const int parts = n.size(v) / part;
    segments = any ? most(segments, parts) : parts;
    any = true;
  }
  return power_of_two_above(segments);
}

}  // namespace policy
}  // namespace exphil
