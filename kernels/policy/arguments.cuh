// The arguments of the policy's kernels. Compiled by the host compiler (c_src/cuda/policy fills them) and by
// NVRTC, so it holds plain types only. All pointers are device addresses.
#pragma once

#include "kernels/policy/network.cuh"

namespace exphil {
namespace policy {

// Where a kernel reads an agent's state and where it writes the next one: another address, so that the host
// can keep the old state until the call has succeeded, or the same.
struct alignas(16) StatePlace {
  const float* from;
  float* to;
};

// policy/step.cu
struct StepArguments {
  const void* weights;       // TEAM shares (policy/team_layout.cuh), one after another
  const StatePlace* states;  // {count}; null: the one in `state`
  StatePlace state;
  const float* obs;            // {count, padded d_input}, zeros in the padding; null: in the second argument
  float* out;                  // {count, d_output}; null: tagged
  unsigned long long* tagged;  // {count, d_output} in host memory: the value's bits below, `sequence` above
  void* board;                 // without a cluster: ActivationLayout::board_bytes()
  unsigned* barrier;           // without a cluster
  int count;
  unsigned sequence;
};

// The second argument of policy_step_armed, which is launched before its frame's observation is there and
// waits for it. All are in host memory that the host writes or reads meanwhile.
struct ArmedArguments {
  const unsigned long long* obs;        // {d_input}: the value's bits below, the launch's `sequence` above
  const unsigned long long* cancelled;  // launches up to this number end without the step
  unsigned long long* ended;            // set to `sequence` where the launch ended without the step
  unsigned long long nanoseconds;       // how long it waits at the most
};

// One agent's observation is passed as the second argument of policy_step and policy_window where it fits: a
// kernel's arguments have 4 KB in total.
constexpr int kMostInlineObs = 832;
static_assert(sizeof(StepArguments) + kMostInlineObs * sizeof(float) <= 4096, "arguments of policy_step");

// The matrix of a product, and what completes the sums of its rows (RowVectors): {columns} each.
struct ProductMatrix {
  const void* weights;                // groups [k / 4][columns] (policy/weights.cuh), on 16 bytes
  const float* bias;                  // null: zeros
  const float *row_scale, *row_sums;  // read where the stored weights have them
};

// policy/product.cu: out = X W^T and an epilogue.
struct ProductArguments : ProductMatrix {
  const float* x;         // {rows, k}, row stride x_stride: a multiple of 4
  const float* residual;  // row stride residual_stride
  // {rows}: the norm's factors, written by policy_row_scales for product_some and product_many, then the
  // means where the product centres.
  float* scale;
  float* out;
  long long x_stride, residual_stride, out_stride;  // floats
  long long rows;
  float epsilon;
  int first_layer;  // not 0: of the first layer, whose norm may count other values
};

// The rows of the kernels of policy/convolution.cu and scan.cu, and the states of a layer. Those kernels'
// arguments have at most 128 bytes: the compiler keeps larger ones in memory, and the kernels take longer.
struct RowStates {
  const StatePlace* states;  // {sequences} or {rows}; null: zero states that are not kept
  long long state_offset;    // of the layer within a state, in floats
  long long rows;            // all of them
  int seq;                   // steps of each sequence
  int sequences;
};

// Vectors are in arrays as policy/row_layout.cuh places them.

// policy/convolution.cu
struct ConvolutionArguments : RowStates {
  const float* in;  // the array of all that the launch reads
  struct {
    float* out;
    const float* weights;  // {taps, channels}
    const float* bias;     // {channels}
  } of[kMostJoined];
};
static_assert(sizeof(ConvolutionArguments) <= 128, "arguments of policy/convolution.cu");

// A product with few columns that is computed where its output is read.
struct ShortMatrix {
  const void* weights;  // groups {columns / 4, rows}
  const float* bias;    // {rows}, then the scales of the rows {rows} where they have them
};

// policy/mean.cu. The mean's input is read from `values`, or computed by a short product and written there.
struct MeanArguments {
  const float* in;  // what the short product reads
  ShortMatrix matrix;
  float* values;
  float* mean;
  long long rows;
};

// policy/scan.cu
struct ScanArguments : RowStates {
  const float *x, *z;
  const float* bc;  // the array of b and c, and of what a short product of dt reads
  const float* dt;  // null: computed by the short product
  ShortMatrix matrix;
  const float* input_dt;
  const float *a, *d;    // {channels, states}, {channels}
  const float* history;  // what the convolution has read whose history the launch keeps
  float* y;
  int last_only;     // y is {sequences, channels}: the last step's
  int decays_input;  // inputs are decayed by their own step, where the scan has that
};
static_assert(sizeof(ScanArguments) <= 128, "arguments of policy/scan.cu");

// policy/heads.cu. a: of a channel's head, or the factors of its ranks {channels, 3 ranks}.
struct HeadsArguments : RowStates {
  const float *value, *key, *query, *rate;
  const float* z;      // null where nothing gates
  const float *a, *d;  // {channels}
  float* out;
  int last_only;  // out is {sequences, channels}: the last step's
  // With the trapezoidal rule, whose a and mix are in the array of rate.
  const float *value_before, *key_before;
  const float* decays;  // with the delta rule
};
static_assert(sizeof(HeadsArguments) <= 128, "arguments of policy/heads.cu");

// policy/gate.cu
struct GateArguments {
  const float *in, *gate;
  const float* weight;  // of the norm: {values}
  float* out;
  long long in_stride, gate_stride, out_stride;  // floats
  long long rows;
  const float* scales;  // of ranks: {values of out, 2 ranks}
};

// policy/angle.cu, rotation.cu, delay.cu. A batch of agents is sequences of one frame.
struct AngleArguments : RowStates {
  const float *rate, *dt;
  float* out;
};
struct RotationArguments {
  const float *in, *turn;
  const float *bias, *weight;  // {heads, ranks size}; of the norm {size}
  float* out;
  long long rows;
};
struct DelayArguments : RowStates {
  const float* in;
  float* out;
};

// policy/cell.cu. A batch of agents is sequences of one frame. The arrays of h have a row for each sequence
// where the cell recalls its state, otherwise one for each frame.
struct CellArguments : RowStates {
  const float* x[formulas::kMaxGates];
  const float* h[formulas::kMaxGates];
  float* carry;          // {sequences, states, units}: where the cell recalls its state
  float* out;            // one row for each frame
  const float* initial;  // an agent's new state; null: zeros
  int step;              // of the sequences
};
static_assert(sizeof(CellArguments) <= 128, "arguments of policy/cell.cu");

// policy/cell_batch.cu and cell_wide.cu
struct CellBatchArguments : RowStates {
  ProductMatrix of_x, of_h;  // the products
  const float* h;            // for policy_cell_rest, from the layer on: {rows, layers, gates, units}
  const float* in;           // hidden before the layer
  float* out;                // and after it, in another array
  const float* scale;        // as in ProductArguments; null: cell_wide.cu finds the factors itself
  float epsilon;             // of the norm of `in`
  int first_layer;           // not 0: whose norm may count other values
  int shares;                // not 0: the device with other batches, which need the room of blocks that wait
};
// policy_cell_ahead. Of layer i, the product is i * layer_stride bytes on, the states i * layer_floats.
struct CellAheadArguments : RowStates {
  ProductMatrix of_h;
  long long layer_stride, layer_floats;
  float* out;  // {rows, layers, gates, units}
};

// A launch that computes a whole frame of a batch, and waits for the frames, which may come later than it:
// policy/batch_frame.cu and scan_frame.cu. Of layer i, weights are i * layer_stride bytes on, the states i *
// layer_floats.
struct AwaitedFrames : RowStates {
  int tiles, spread;          // first_of_tile()
  int tile_rows, chunk_rows;  // agents of a tile, and of those at a time, at most
  // Of chunk c of tile t, word (t chunks + c) kArrivedWords: `number` when its frames are there.
  const unsigned long long* arrived;
  unsigned long long number;
  unsigned long long nanoseconds;  // at most so long
  unsigned long long* missed;      // then gets the number: answers and new states are none
  // {tiles, blocks of a cluster}: each gets the number when its block has written answers and states; not
  // where the output is not in the launch.
  unsigned long long* finished;
  const float* frames;  // {rows, padded frame}, in host memory
  float* out;           // {rows, outputs}; or {rows, hidden}
  long long layer_stride, layer_floats;
  float epsilon, out_epsilon;  // of the norms of hidden before a layer, and before the output
  ProductMatrix of_out;        // the output
};

// policy/batch_frame.cu
struct FrameArguments : AwaitedFrames {
  float* h;   // {rows, layers, gates, units}: U h + b of the states
  int known;  // not 0: they are there; otherwise the launch makes them
  ProductMatrix of_x, of_h;
};

// policy/scan_frame.cu
struct ScanFrameArguments : AwaitedFrames {
  ProductMatrix of_input, of_in, of_parts, of_hidden;
  ShortMatrix of_dt;
  const float *taps, *taps_bias;  // of the convolution: {taps, channels}, {channels}
  const float *a, *d;             // {channels, states}, {channels}
  float input_epsilon;            // of the norm of the frame
  int decays_input;               // as in ScanArguments
};

// policy/cell_walk.cu and cell_walk_wide.cu, without h and step.
struct CellWalkArguments : CellArguments {
  ProductMatrix recurrent;  // the product of the states
  int together;             // sequences of a cluster at a time
  // In a pipeline of layers (PIPELINED), in words of policy/tagged.cuh: x {rows, columns of its product},
  // made meanwhile, with the number of the layer; null: args.x. And the outputs {rows, units}, with the
  // number of the next layer; null: args.out.
  unsigned number;
  const unsigned long long* tagged_x;
  unsigned long long* tagged_out;
  // Of one sequence whose args.x are a ring: the x of row i are in row (first_slot + i) % slots. 0: row i.
  int first_slot, slots;
};

// policy/product_follow.cu: the product of outputs of a walk, {rows, units}, while they are made.
struct FollowArguments : ProductMatrix {
  const unsigned long long* in;
  unsigned long long* out;  // {rows, columns}
  unsigned number;          // of both
  int seq, sequences;
  int together;  // sequences of a cluster of the walk
  float epsilon;
};

// policy/window.cu, policy/window_team.cu: the last outputs of windows from a zero state.
//
// The windows' frames are in rows of the front: frame t of window s in row first + s * front_step + t. The
// last `fresh` of all rows are computed first, from obs. Where slots is not 0, the front is a ring in which
// each row is also kept `slots` rows before or after.
constexpr int kMostWindowPhases = 14, kMostWindowBuffers = 12;

// What every network uses comes first: a block's first read of each 256 bytes of its arguments takes long.
struct WindowArguments {
  float* obs;             // {fresh, padded frame}; null: one frame, in the second argument
  const float* host_obs;  // the same in host memory, from which obs is written first; null: obs is complete
  float *front_hidden, *front_lead;  // {rows}: before the first layer; of its leading product
  float* last_hidden;                // {count, hidden}
  unsigned long long* tagged;        // {count, outs} in host memory, as in StepArguments
  unsigned* barrier;
  long long layer_stride;  // bytes
  int first, front_step, slots, fresh;
  int seq, count;
  int decays_input;  // inputs are decayed by their own step, where a scan has that
  unsigned sequence;
  // Between the layers, {count * seq} rows each: by buffer (policy/window_plan.cuh). Of the hidden values
  // there are twice as many. Those of the output block: {count} rows.
  float* values[kMostWindowBuffers];
  // Of the phases of the input block, of the first layer, and of the output block. Those of layer i are i *
  // layer_stride bytes on. Of a convolution, weights is {taps, channels} and bias {channels}; of a scan, A
  // {channels, states} and D {channels}. A short product's weights: groups {k / 4, rows}.
  ProductMatrix weights[kMostWindowPhases];
};
static_assert(sizeof(WindowArguments) + kMostInlineObs * sizeof(float) <= 4096, "arguments of policy_window");

}  // namespace policy
}  // namespace exphil
