// The layout of the weights and of the shared memory of one block of policy_step (policy/step.cu), for the
// kernel and for c_src/cuda/policy. A new kind of phase with weights has its place in TeamSection.
#pragma once

#include "kernels/policy/layout.cuh"
#include "kernels/policy/team_plan.cuh"

namespace exphil {
namespace policy {

// ---- the weights of one block ----
//
// A matrix of R rows and S segments is stored as groups [8][S * R]: task t = segment * R + row reads its 32
// weights at j * S * R + t for j = 0..7, so that neighbouring threads read neighbouring groups. That of a
// short product: groups [columns / 4][R].

struct PhaseWeights {
  MatrixPart matrix;  // of a product
  RowVectors rows;    // of its rows
  // Of a convolution: {taps, own}, {own}; of a scan: A {own, state}, D {own}; of a recurrence over heads: A
  // and D {own}, or with factors of ranks {own, 3 ranks}; of a gate, in every block: the factors of ranks
  // {values, 2 ranks} and the weight of its norm {size}; of a rotation: the bias of the block's heads {heads,
  // ranks size} and the weight of its norm {size}.
  Part<float> channels, vector;
};

// The phases of a block of the network, one after another. skips: without the matrix of phase `skips`.
struct TeamSection {
  PhaseWeights phases[kMostPhases] = {};
  long long bytes = 0;

  constexpr TeamSection() = default;
  constexpr TeamSection(const Network& n, const TeamPlan& plan, int team, const Block& block,
                        int skips = -1) {
    long long end = 0;
    for (int i = 0; i < block.count; ++i) {
      const int at = block.phases[i].index;
      PhaseWeights& to = phases[i];
      if (block.phases[i].kind == Kind::product) {
        const Product& p = n.products[at];
        const int rows = weight_rows(n, plan, team, at);
        if (i != skips) to.matrix = MatrixPart(n, end, 1LL * rows * weight_columns(n, plan, team, at));
        // Rows that every block adds up have a bias only where there is one.
        const bool biased = p.biased || plan.splits[at] != Split::depth;
        to.rows = RowVectors(n, i == skips ? end : to.matrix.end(), rows, p, biased);
        end = to.rows.end();
      } else if (block.phases[i].kind == Kind::convolution) {
        const Convolution& c = n.convolutions[at];
        channel_weights(&to, end, c.taps, own_channels(n, team, c.in));
        end = to.vector.end();
      } else if (block.phases[i].kind == Kind::scan) {
        const Scan& s = n.scans[at];
        channel_weights(&to, end, n.size(s.b), own_channels(n.size(s.x), team));
        end = to.vector.end();
      } else if (block.phases[i].kind == Kind::heads) {
        channel_weights(&to, end, n.heads[at].weights(), own_channels(n, team, n.heads[at].value));
        end = to.vector.end();
      } else if (block.phases[i].kind == Kind::gate) {
        const Gate& gate = n.gates[at];
        to.channels = Part<float>(end, 2LL * gate.ranks * n.values(gate.out));
        to.vector = Part<float>(to.channels.end(), gate.parts == 0 ? 0 : n.size(gate.in));
        end = to.vector.end();
      } else if (block.phases[i].kind == Kind::rotation) {
        const Rotation& rotation = n.rotations[at];
        to.channels = Part<float>(end, values_of_heads(n, team, rotation.out));
        to.vector = Part<float>(to.channels.end(), size_of(n, rotation));
        end = to.vector.end();
      }
    }
    bytes = round_up_bytes(end, 16);
  }

 private:
  static constexpr void channel_weights(PhaseWeights* to, long long after, long long each, long long own) {
    to->channels = Part<float>(after, each * own);
    to->vector = Part<float>(to->channels.end(), own);
  }
};

// What of a block's weights is copied into its shared memory at the beginning (-D STAGED).
enum Staging : int {
  kStageNothing,
  kStageSections,  // all but the matrices of each layer's first product, which the threads may hold in
                   // registers
  kStageAll,       // all but that of the first layer
};

// The part that is staged in shared memory comes first; then the matrices of each layer's first product.
struct TeamLayout {
  TeamSection input, output, layer;
  MatrixPart first;
  long long first_bytes, input_at, output_at, layers_at, staged_bytes, firsts_at, bytes;

  constexpr TeamLayout(const Network& n, const TeamPlan& plan, int team)
      : input(n, plan, team, n.input),
        output(n, plan, team, n.output),
        layer(n, plan, team, n.layer, first_product(n)),
        first(n, 0,
              1LL * weight_rows(n, plan, team, n.layer.phases[first_product(n)].index) *
                  weight_columns(n, plan, team, n.layer.phases[first_product(n)].index)),
        first_bytes(round_up_bytes(first.end(), 16)),
        input_at(0),
        output_at(input_at + input.bytes),
        layers_at(output_at + output.bytes),
        staged_bytes(layers_at + n.layers * layer.bytes),
        firsts_at(staged_bytes),
        bytes(firsts_at + n.layers * first_bytes) {}

  // Bytes of shared memory, and where in it the first matrix of a layer is, where that is staged.
  constexpr long long staged(int how, int count) const {
    const long long firsts = how == kStageAll ? (count - 1) * first_bytes : 0;
    return how == kStageNothing ? 0 : staged_bytes + firsts;
  }
  constexpr long long staged_first_at(int index) const { return staged_bytes + (index - 1) * first_bytes; }
  constexpr long long layer_at(int index) const { return layers_at + index * layer.bytes; }
  constexpr long long first_at(int index) const { return firsts_at + index * first_bytes; }
};

// ---- activations of `agents` agents in a block's shared memory, after the staged weights ----

// A cell writes hidden in the round in which the products before it read it (policy/team.cuh): there are two
// of it.
constexpr bool takes_turns(const Network& n, int vector) {
  return vector == n.hidden && n.has(Kind::cell);
}

// What products make of a cell's state before the frame: of every layer by itself.
constexpr bool of_recall(const Network& n, int vector) {
  for (const GatedCell& cell : n.cells) {
    for (const int h : cell.h) {
      if (h == vector && h != kNoVector) return true;
    }
  }
  return false;
}

// Those up to `go` are the board, which the blocks of a team write to each other.
struct ActivationLayout {
  Part<float> vectors[kMostVectors] = {};  // {agents, size}; own channels; of a divided product, all its rows
  Part<float> parts_of[kMostPhases] = {};  // {agents, segments, rows} of a product that is divided by depth
  Part<float> means[kMostVectors] = {};    // {agents, segments}: sums of a vector whose mean is needed
  Part<float> other_hidden;                // {agents, size}, where hidden takes turns
  Part<float> go;                          // of a launch ahead of its observation: 1 where that has come
  Part<float> sums;                        // {agents}{tasks} of the widest product
  Part<float> residual;                    // {agents, rows}: this block's rows of what a product adds to
  Part<float> norm_scale, norm_mean;       // {agents} each
  Part<const float*> from;                 // {agents}: states to read; null beyond the last agent
  Part<float*> to;                         // {agents}: states to write
  Part<unsigned long long> arrived;        // barriers of what is staged: input, output, layers, firsts
  Part<unsigned long long> words;          // in which a block of a cluster counts what it is sent
  Part<float> token;
  int residual_rows = 0;
  long long bytes = 0;

  constexpr ActivationLayout(const Network& n, const TeamPlan& plan, int team, int agents) {
    const long long board = place_board(n, plan, agents);
    go = Part<float>(board, 1);
    long long end = go.end();
    for (int v = 0; v < kMostVectors; ++v) {
      if (plan.places[v] == Place::own) {
        vectors[v] = Part<float>(end, (of_recall(n, v) ? n.layers : 1LL) * agents * own_channels(n, team, v));
        end = vectors[v].end();
      }
      if (plan.places[v] == Place::heads) {
        vectors[v] = Part<float>(end, 1LL * agents * values_of_heads(n, team, v));
        end = vectors[v].end();
      }
      // The outputs of a product lie together: {agents, rows}.
      if (plan.places[v] == Place::common && v == n.products[plan.parts_of[v]].out[0].vector) {
        const Product& p = n.products[plan.parts_of[v]];
        vectors[v] = Part<float>(end, 1LL * agents * n.rows(p));
        for (int o = 1; o < p.outputs; ++o) {
          const long long at = vectors[v].at + 4LL * first_row(n, p, o);
          vectors[p.out[o].vector] = Part<float>(at, 0, sizeof(float));
        }
        end = vectors[v].end();
      }
    }
    place_scratch(n, plan, team, agents, end);
  }

  constexpr long long board_bytes() const { return go.end(); }

 private:
  constexpr long long place_board(const Network& n, const TeamPlan& plan, int agents) {
    long long end = 0;
    for (int v = 0; v < kMostVectors; ++v) {
      if (!plan.on_board(v) || v == n.frame) continue;
      vectors[v] = Part<float>(end, 1LL * agents * n.size(v));
      end = vectors[v].end();
    }
    for (int p = 0; p < kMostPhases; ++p) {
      if (n.products[p].outputs == 0 || plan.splits[p] != Split::depth) continue;
      const int segments = n.size(n.products[p].in) / kSegment;
      parts_of[p] = Part<float>(end, 1LL * agents * segments * n.rows(n.products[p]));
      end = parts_of[p].end();
    }
    for (int v = 0; v < kMostVectors; ++v) {
      if (!plan.has_mean[v]) continue;
      means[v] = Part<float>(end, 1LL * agents * (n.size(v) / kSegment));
      end = means[v].end();
    }
    other_hidden = Part<float>(end, takes_turns(n, n.hidden) ? 1LL * agents * n.size(n.hidden) : 0);
    vectors[n.frame] = Part<float>(other_hidden.end(), 1LL * agents * n.size(n.frame));
    return vectors[n.frame].end();
  }

  constexpr void place_scratch(const Network& n, const TeamPlan& plan, int team, int agents,
                               long long after) {
    int tasks = 0;
    bool centres = false;
    for (int i = 0; i < kMostPhases; ++i) {
      const Product& p = n.products[i];
      if (p.outputs == 0 || plan.splits[i] != Split::rows) continue;
      const int rows = weight_rows(n, plan, team, i);
      tasks = most(tasks, rows * (weight_columns(n, plan, team, i) / kSegment));
      if (p.adds) residual_rows = most(residual_rows, rows);
      centres = centres || n.centres(p);
    }
    sums = Part<float>(after, 1LL * agents * tasks);
    residual = Part<float>(sums.end(), 1LL * agents * residual_rows, sizeof(float));
    norm_scale = Part<float>(residual.end(), agents, sizeof(float));
    norm_mean = Part<float>(norm_scale.end(), centres ? agents : 0, sizeof(float));
    from = Part<const float*>(norm_mean.end(), agents, sizeof(float*));
    to = Part<float*>(from.end(), agents, sizeof(float*));
    arrived = Part<unsigned long long>(to.end(), 2 + 2 * n.layers, sizeof(unsigned long long));
    words = Part<unsigned long long>(arrived.end(), 2, sizeof(unsigned long long));
    token = Part<float>(words.end(), 1, sizeof(float));
    bytes = round_up_bytes(token.end(), 16);
  }
};

}  // namespace policy
}  // namespace exphil
