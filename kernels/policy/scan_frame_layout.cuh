// Which networks policy/scan_frame.cu computes, and the shape of its launch. Compiled by the host compiler
// and by NVRTC.
#pragma once

#include "kernels/policy/batch_frame_layout.cuh"
#include "kernels/policy/row_layout.cuh"

namespace exphil {
namespace policy {

// The phases of a layer as Mamba has it, by their indices: a product of hidden that gives x and z; the
// convolution of x; a product of what that gives, whose outputs are b, c and what dt is made of; the short
// product that makes dt; the mean of dt, where inputs are scaled by that; the scan; and the product that adds
// to hidden. in: kNoPhase where the layer is another one.
struct ScanLayer {
  int in = kNoPhase, convolution = kNoPhase, parts = kNoPhase, dt = kNoPhase, mean = kNoPhase,
      scan = kNoPhase, out = kNoPhase;
};
constexpr bool is_plain(const Product& p) {
  return !p.is_short && !p.diagonal;
}
constexpr bool gives(const Product& p, int vector) {
  for (int o = 0; o < p.outputs; ++o) {
    if (p.out[o].vector == vector) return true;
  }
  return false;
}
constexpr ScanLayer scan_layer(const Network& n) {
  constexpr Kind kKinds[] = {Kind::product, Kind::convolution, Kind::product, Kind::product,
                             Kind::mean,    Kind::scan,        Kind::product};
  const bool has_mean = n.has(Kind::mean);
  int found[7] = {};
  int at = 0;
  for (int k = 0; k < 7; ++k) {
    found[k] = kNoPhase;
    if (kKinds[k] == Kind::mean && !has_mean) continue;
    if (at >= n.layer.count || n.layer.phases[at].kind != kKinds[k]) return {};
    found[k] = n.layer.phases[at++].index;
  }
  if (at != n.layer.count) return {};
  const Product &in = n.products[found[0]], &parts = n.products[found[2]], &dt = n.products[found[3]],
                &out = n.products[found[6]];
  const Convolution& convolution = n.convolutions[found[1]];
  const Scan& scan = n.scans[found[5]];
  bool fits = is_plain(in) && in.in == n.hidden && !in.adds && in.outputs == 2 &&
              in.out[0].vector == convolution.in && in.out[1].vector == scan.z;
  fits = fits && convolution.taps > 1 && convolution.out == scan.x && parts.in == scan.x;
  fits = fits && is_plain(parts) && parts.norm == Norm::none && !parts.adds && gives(parts, scan.b) &&
         gives(parts, scan.c) && gives(parts, dt.in);
  fits = fits && dt.is_short && dt.outputs == 1 && dt.out[0].vector == scan.dt;
  fits = fits && (has_mean ? n.means[found[4]].in == scan.dt && n.means[found[4]].out == scan.input_dt
                           : scan.input_dt == kNoVector);
  fits = fits && is_plain(out) && out.in == scan.out && out.norm == Norm::none && out.adds &&
         out.outputs == 1 && out.out[0].vector == n.hidden;
  if (!fits) return {};
  return {found[0], found[1], found[2], found[3], found[4], found[5], found[6]};
}
// The one product that makes hidden of a frame; kNoPhase where the frame is hidden.
constexpr int input_product(const Network& n) {
  return n.input.count == 0 ? kNoPhase : n.input.phases[0].index;
}
constexpr bool input_fits(const Network& n) {
  if (n.input.count == 0) return n.frame == n.hidden;
  if (n.input.count != 1 || n.input.phases[0].kind != Kind::product) return false;
  const Product& p = n.products[n.input.phases[0].index];
  return is_plain(p) && p.in == n.frame && !p.adds && p.outputs == 1 && p.out[0].vector == n.hidden;
}

constexpr int kScanFrameThreads = 256, kScanFrameWarps = kScanFrameThreads / 32;
constexpr int kScanFrameWords = 8;  // that count what arrives
constexpr int kScanFrameTeam = 8;   // most blocks of a cluster

// A cluster of `team` blocks has a tile of up to `rows` agents. Each block has `own` channels of the scan,
// `share` values of hidden and, of the output, the answers of `answers` agents. No blocks: a network without
// it.
struct ScanFrameShape {
  int team = 0, rows = 0;
  int own = 0, share = 0, answers = 0;
  int outputs = 0;       // 0: not in the launch
  int staged = 0;        // bytes of weights that are copied ahead to shared memory
  long long shared = 0;  // bytes
};
// Between rows of what products read, and of sums, so that what lanes use together is in different banks.
constexpr int kValuesApart = 4, kSumsApart = 4;
constexpr int frame_columns(const Network& n, const ScanLayer& layer) {
  return round_up(n.rows(n.products[layer.parts]), 4);  // of what every block has of b, c and dt's input
}
// Floats of what is in one place at different times: the sums of a layer's first product, what the scan
// gives, the frame; what each block has of the sums for b and c, the sums of the others; the last inputs of
// the convolution, and the output's sums and hidden of the agents that the block answers.
constexpr int wide_floats(const Network& n, const ScanLayer& layer, const ScanFrameShape& s) {
  const int sums = n.size(n.hidden) / kSegment * (2 * s.own + kSumsApart);
  return s.rows * most(sums, most(n.size(n.scans[layer.scan].x), n.size(n.frame)) + kValuesApart);
}
constexpr int part_floats(const Network& n, const ScanLayer& layer, const ScanFrameShape& s) {
  const int channels = n.size(n.scans[layer.scan].x);
  const int parts = channels / kSegment * (frame_columns(n, layer) + kSumsApart);
  const int sums = most(channels, n.size(n.frame)) / kSegment * (s.share + kSumsApart);
  return s.rows * most(most(parts, sums), s.share / kSegment * (round_up(s.outputs, 4) + kSumsApart));
}
constexpr int answer_floats(const Network& n, const ScanFrameShape& s) {
  const int sums = n.size(n.hidden) / kSegment * (round_up(s.outputs, 4) + kSumsApart);
  return s.outputs == 0 ? 0 : s.answers * (sums + n.size(n.hidden));
}
constexpr int history_floats(const Network& n, const ScanLayer& layer, const ScanFrameShape& s) {
  return most(s.rows * (n.convolutions[layer.convolution].taps - 1) * s.own, answer_floats(n, s));
}
constexpr ScanFrameShape scan_frame_shape(const Network& n, int rows) {
  const ScanLayer layer = scan_layer(n);
  if (layer.in == kNoPhase || !input_fits(n) || n.on_tensor_cores()) return {};
  const int channels = n.size(n.scans[layer.scan].x), hidden = n.size(n.hidden);
  ScanFrameShape s;
  for (int team = kScanFrameTeam; team >= 2 && s.team == 0; team /= 2) {
    if (channels % (kSegment * team) == 0 && hidden % (kSegment * team) == 0) s.team = team;
  }
  if (s.team == 0) return {};
  s.rows = rows, s.own = channels / s.team, s.share = hidden / s.team, s.answers = divide_up(rows, s.team);
  if (output_product(n) != kNoPhase) s.outputs = n.rows(n.products[output_product(n)]);
  // The lanes of the states of the block's channels take its threads in whole passes.
  const int lanes = s.own * Lanes(n.values(n.scans[layer.scan].b)).lanes;
  if (lanes % kScanFrameThreads != 0 && kScanFrameThreads % lanes != 0) return {};
  // Where a warp has two segments of the product that adds to hidden, the weights of the second.
  const int segments = channels / kSegment;
  if (s.share == 32 && segments == 2 * kScanFrameWarps) {
    s.staged = channels / 2 * s.share * n.weight_bytes();
  }
  const long long floats =
      rows * (hidden + 2 * kValuesApart + 3LL * s.own + frame_columns(n, layer) + channels / kSegment) +
      wide_floats(n, layer, s) + part_floats(n, layer, s) + history_floats(n, layer, s);
  s.shared = 4 * floats + rows * 16 + round_up(8 * rows, 16) + round_up(4 * rows, 16) +
             round_up(most(s.staged, 1), 16) + kScanFrameWords * 8;
  return s;
}

}  // namespace policy
}  // namespace exphil
