// What a product kernel of the AR-SSM layer is called with. Shared, bit for bit, by the kernel and by the
// launcher in c_src/cuda, so it holds plain types only.
#pragma once

namespace exphil {
namespace semiseparable {

// How the left operand is read, and what becomes of a sum. Part of the kernel's -D interface: append only.
enum class Left : int { plain = 0, read_out = 1 };  // x; (k + k_reverse) v
enum class Finish : int { relu = 0, gate = 1, gated = 2, output = 3 };

struct ProductArguments {
  const float* x;          // {rows, depth}; k where the left operand is the read-out
  const float* k_reverse;  // {rows, depth}, or null
  const float* v;          // {rows, depth}
  const float* weights;    // {outs, depth}
  const float* bias;       // {outs}, or null
  float* out;              // {rows, outs}
  const float* gates;      // gated: {rows, outs}
  const float* taps;       // output: {outs, 3}, for t - 1, t, t + 1
  const float* input;      // output: the layer's x {rows, outs}
  long long rows;          // batch * seq
  long long seq;
  int outs, depth;
};

constexpr int kTile = 64;  // rows and outs of a block
constexpr int kDepthTile = 16;
constexpr int kThreads = 256;

}  // namespace semiseparable
}  // namespace exphil
