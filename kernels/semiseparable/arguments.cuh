// The arguments of a product kernel of the AR-SSM layer. The kernel and the launcher in c_src/cuda share this
// struct, so it holds plain types only.
#pragma once

namespace exphil {
namespace semiseparable {

// The left operand, and the operation on a sum. Part of the kernel's -D interface: append only.
enum class Left : int { plain = 0, read_out = 1 };  // x; (k + k_reverse) v
enum class Finish : int { relu = 0, gate = 1, gated = 2, output = 3 };

struct ProductArguments {
  const float* x;          // {rows, depth}; k for Left::read_out
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
