// A policy's network as its kernels run it: vectors, and lists of phases over them, as constants. The host
// makes it from core::Network (c_src/cuda/policy/lower.hpp), and NVRTC gets it as the define NETWORK
// (policy/dims.cuh). It differs from core::Network in this:
// - There are no norms: a product normalises what it reads, and the norm's weight is in its matrix.
// - Products of one input are one product with several outputs, one after another.
// - An activation belongs to the product whose output it changes.
// - A vector that is read in parts is a vector for each part. So every vector is read and written whole.
// - Vectors are padded with zeros: to a multiple of the segment size, or to what their readers ask for.
// - What reads or writes the first values of hidden reads or writes hidden, with zeros in its matrix for the
//   others.
// - There are no recalls: a cell has the vector that recalls its state, and writes hidden itself.
//
// A new kind of phase: a struct and an array here, its making in lower_block.cpp and its text in
// lower_text.cpp, and its place in each family of kernels. In the step's: policy/team_plan.cuh (who reads and
// writes channel by channel), team_layout.cuh and pack_team.cpp (its weights), held.cuh (a state that threads
// hold), and a member function that Step::walk calls.
//
// Plain types, compiled by the host compiler and by NVRTC.
#pragma once

#include "kernels/common/cells.cuh"
#include "kernels/common/heads.cuh"
#include "kernels/common/segments.cuh"
#include "kernels/policy/loops.cuh"

namespace exphil {
namespace policy {

// NVRTC gets -default-device: these need no annotation.
constexpr int round_up(int value, int multiple) {
  return (value + multiple - 1) / multiple * multiple;
}
constexpr int divide_up(int value, int by) {
  return (value + by - 1) / by;
}
constexpr int power_of_two_above(int value) {
  int power = 1;
  while (power < value) power *= 2;
  return power;
}
constexpr int power_of_two_within(int value) {
  int power = 1;
  while (power * 2 <= value) power *= 2;
  return power;
}
constexpr int least(int left, int right) {
  return left < right ? left : right;
}
constexpr int most(int left, int right) {
  return left > right ? left : right;
}

using exphil::kSegment;  // of a dot product: common/dot.cuh

// How the weights of the matrices are stored (core/precision.hpp). Kernels widen them to f32. tf32x3: f32, in
// the order in which tensor cores take them (policy/layout.cuh).
enum class Stored : int { f32, bf16, f16, int8, tf32x3 };

// How the states of scans and of heads are stored between frames: of 16 bits, two to a word of a layer's
// state. Kernels widen them to f32. The numbers are those of device::Element.
enum class States : int { f32, f16, bf16 };
enum class Kind : int { product, convolution, mean, scan, cell, heads, gate, angle, rotation, delay };
constexpr int kKinds = 10;
enum class Norm : int { none, rms, layer };
enum class Activation : int { none, relu, silu, softplus, sigmoid };

constexpr int kNoVector = -1;
constexpr int kMostVectors = 24, kMostPhases = 12, kMostOutputs = 8;

struct Vector {
  int values = 0;  // the others are zeros
  int size = 0;
};

struct Output {
  int vector = kNoVector;
  Activation activation = Activation::none;
  // The bits of the range to which a softplus is clipped.
  bool clips = false;
  unsigned lowest = 0, highest = 0;
};

// The rows of the matrix are those of its outputs, one output after another.
struct Product {
  int in = kNoVector;
  Norm norm = Norm::none;  // of `in`
  unsigned epsilon = 0;    // its bits
  bool biased = false;     // the bias is not zeros everywhere
  bool adds = false;       // to its output, which it reads
  bool is_short = false;   // so few columns that one thread sums up a row
  int outputs = 0;
  Output out[kMostOutputs] = {};
  // Values of `in` that the norm counts: 0: all. In the first layer another number of them; 0: the same.
  int counted = 0, counted_first = 0;
  bool diagonal = false;  // a weight for each value instead of rows: a norm that no other product follows
};

// Each channel's last inputs, then silu. State: {taps - 1, channels}, oldest first.
struct Convolution {
  int in = kNoVector, out = kNoVector;
  int taps = 1;
  int state_at = 0;  // in a layer's state, floats
};

constexpr int kMostJoined = 3;  // convolutions in one launch over many rows

struct Mean {
  int in = kNoVector, out = kNoVector;
};

// A step of Mamba's scan: core::SelectiveScan, with dt and z activated. State: {channels, size of b}, as
// Network::states says.
struct Scan {
  int x = kNoVector, dt = kNoVector, b = kNoVector, c = kNoVector, z = kNoVector, out = kNoVector;
  int input_dt = kNoVector;
  bool decays_input = false;          // inputs of a sequence may be decayed by their own step
  bool carried_decays_input = false;  // those of a carried state are
  int state_at = 0;
};

// A step of a gated recurrence: core::GatedCell. State: {states of the cell, size of x[0]}.
struct GatedCell {
  formulas::Cell cell = formulas::Cell::gru;
  int x[formulas::kMaxGates] = {kNoVector, kNoVector, kNoVector, kNoVector};
  int h[formulas::kMaxGates] = {kNoVector, kNoVector, kNoVector, kNoVector};
  int before = kNoVector;  // the first of its states before the frame, of which products make h
  int out = kNoVector;
  bool adds = false;  // to its output
  int state_at = 0;
};

// A step of a recurrence with a matrix state for each head: core::HeadRecurrence with the linear rule, whose
// rate and decay are one vector, with a value for each head; gated by z, activated, where there is one.
// State: {channels, Lanes(keys).size()}, as Network::states says; a channel is a value of a head.
//
// With the delta rule each channel has a rate; a head's decay is the mean of its `decays`, as many as keys.
//
// With the trapezoidal rule the rate is dt, and the coefficients follow from it, a and mix
// (common/trapezoid.cuh); key, query and key_before are {ranks, heads, keys}. Where it is ranked (MIMO) a
// channel has factors of its ranks: of the value, of z before it is activated, and of what is summed up over
// the ranks. Without z the outputs are those of all ranks, {ranks, channels}.
struct Heads {
  int value = kNoVector, key = kNoVector, query = kNoVector, rate = kNoVector;
  int z = kNoVector, out = kNoVector;
  int heads = 1, groups = 1;
  int state_at = 0;
  formulas::HeadRule rule = formulas::HeadRule::linear;
  int value_before = kNoVector, key_before = kNoVector, a = kNoVector, mix = kNoVector;
  unsigned floor = 0;  // of -A: its bits
  int ranks = 1;
  bool ranked = false;
  int decays = kNoVector;

  constexpr bool trapezoid() const { return rule == formulas::HeadRule::trapezoid; }
  constexpr bool delta() const { return rule == formulas::HeadRule::delta; }
  // Weights of a channel beside D.
  constexpr int weights() const { return rule == formulas::HeadRule::linear ? 1 : ranked ? 3 * ranks : 0; }
  constexpr bool spreads() const { return ranked && z == kNoVector; }
};

// The values of `in`, normalised (RMSNorm) in `parts` equal parts, or not where that is 0, times those of
// `gate`, activated, where there is one. They are the values of `out` from value `at` on; the phase of the
// last ones writes the padding too.
//
// Of ranks, where there are any: `in` is {ranks, values of out}, and the gate is not activated. Each rank's
// values are gated by the gate times a factor of the channel and rank, activated, and summed up over the
// ranks with other factors.
struct Gate {
  int in = kNoVector, gate = kNoVector, out = kNoVector;
  int at = 0, parts = 0;
  unsigned epsilon = 0;  // its bits
  int ranks = 0;
};

// core::Angle. out: {heads, angles, 2}, cosine and sine. State: {heads, angles}.
struct Angle {
  int rate = kNoVector, dt = kNoVector, out = kNoVector;
  int heads = 1;
  int state_at = 0;
};

// core::Rotation of what it reads, normalised (RMSNorm) by ranks and groups.
struct Rotation {
  int in = kNoVector, turn = kNoVector, out = kNoVector;
  int heads = 1, groups = 1, ranks = 1;
  bool halves = false;
  unsigned epsilon = 0;  // its bits
};

// core::Delay. State: the values of `in`, with its padding.
struct Delay {
  int in = kNoVector, out = kNoVector;
  int state_at = 0;
};

struct Phase {
  Kind kind = Kind::product;
  int index = 0;  // in the list of its kind
};
struct Block {
  int count = 0;
  Phase phases[kMostPhases] = {};
};

struct Network {
  Stored stored = Stored::f32;
  States states = States::f32;
  int layers = 0;        // how many times `layer` is run, each time with its own weights and states
  int layer_floats = 0;  // of a layer's state
  int frame = 0, hidden = 0, outs = 0;
  Vector vectors[kMostVectors] = {};
  Block input, layer, output;
  Product products[kMostPhases] = {};
  Convolution convolutions[kMostPhases] = {};
  Mean means[kMostPhases] = {};
  Scan scans[kMostPhases] = {};
  GatedCell cells[kMostPhases] = {};
  Heads heads[kMostPhases] = {};
  Gate gates[kMostPhases] = {};
  Angle angles[kMostPhases] = {};
  Rotation rotations[kMostPhases] = {};
  Delay delays[kMostPhases] = {};

  constexpr int size(int vector) const { return vectors[vector].size; }
  constexpr int values(int vector) const { return vectors[vector].values; }
  constexpr long long state_floats() const { return static_cast<long long>(layers) * layer_floats; }

  constexpr bool on_tensor_cores() const { return stored == Stored::tf32x3; }
  // The kernels over many rows alone know products on tensor cores, and states of 16 bits: every call goes
  // through those.
  constexpr bool in_rows_alone() const { return on_tensor_cores() || states != States::f32; }
  // Words of so many values of a scan's or a head's state: an even number of them.
  constexpr int state_words(int values) const { return states == States::f32 ? values : values / 2; }
  constexpr int weight_bytes() const {
    return stored == Stored::f32 || on_tensor_cores() ? 4 : stored == Stored::int8 ? 1 : 2;
  }
  // A row's sum of q x is multiplied by the row's scale.
  constexpr bool row_scales() const { return stored == Stored::int8; }
  // LayerNorm's mean times the sum of a row is subtracted from the row's product: rounded rows, unlike those
  // of f32 (c_src/cuda/policy/fold.hpp), do not sum up to zero; nor does the one weight of a diagonal's row.
  constexpr bool centres(const Product& product) const {
    return product.norm == Norm::layer && (stored != Stored::f32 || product.diagonal);
  }
  constexpr int counted(const Product& product) const {
    return product.counted == 0 ? values(product.in) : product.counted;
  }
  constexpr int counted_first(const Product& product) const {
    return product.counted_first == 0 ? counted(product) : product.counted_first;
  }
  constexpr bool has(Kind kind) const {  // a layer
    for (int i = 0; i < layer.count; ++i) {
      if (layer.phases[i].kind == kind) return true;
    }
    return false;
  }
  // Whether products read it as a cell's state before the frame.
  constexpr bool recalled(int vector) const {
    for (const GatedCell& cell : cells) {
      if (vector != kNoVector && cell.before == vector) return true;
    }
    return false;
  }
  constexpr int rows(const Product& product) const {
    int sum = 0;
    for (int i = 0; i < product.outputs; ++i) sum += size(product.out[i].vector);
    return sum;
  }
};

// The place in a layer of its first product with a matrix.
constexpr int first_product(const Network& n) {
  int at = 0;
  while (n.layer.phases[at].kind != Kind::product || n.products[n.layer.phases[at].index].diagonal) ++at;
  return at;
}

// Where output `output` begins among the rows of its product.
constexpr int first_row(const Network& network, const Product& product, int output) {
  int first = 0;
  for (int i = 0; i < output; ++i) first += network.size(product.out[i].vector);
  return first;
}

// The states of one channel of a scan, or of a row of a head, are spread over neighbouring lanes of a warp,
// each with so many (in float4s). values: of a channel, without padding.
struct Lanes {
  int lanes, each;
  constexpr explicit Lanes(int values)
      : lanes(least(32, power_of_two_above(divide_up(values, 4)))),
        each(round_up(divide_up(values, lanes), 4)) {}
  constexpr int size() const { return lanes * each; }
};

// Keys of a head, values of one of its rows, and the head and the group of such a row: rows beyond the last
// one have those of the last.
constexpr int keys_of(const Network& n, const Heads& heads) {
  return n.values(heads.key) / (heads.trapezoid() ? heads.ranks * heads.heads : heads.groups);
}
constexpr int head_of(const Network& n, const Heads& heads, int channel) {
  return least(channel, n.values(heads.value) - 1) / (n.values(heads.value) / heads.heads);
}
constexpr int group_of(const Heads& heads, int head) {
  return head / (heads.heads / heads.groups);
}

// Of a rotation: the values of a key, and its angles.
constexpr int size_of(const Network& n, const Rotation& rotation) {
  return n.values(rotation.in) / (rotation.ranks * rotation.groups);
}
constexpr int angles_of(const Network& n, const Rotation& rotation) {
  return n.values(rotation.turn) / (2 * rotation.heads);
}

}  // namespace policy
}  // namespace exphil
