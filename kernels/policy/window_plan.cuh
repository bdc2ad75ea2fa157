// How policy/window.cu and policy/window_team.cu run a network: which phases of a layer are computed row by
// row and which over time, and what of its vectors is in memory. They take networks of this shape:
// - input: one product;
// - a layer: a product of the hidden values (the leading one); then phases of rows: convolutions of its
//   outputs, products of these, short products of those, means of what short products write; then scans; then
//   a product of a scan's output that is added to the hidden values (the closing one);
// - output: products, each of what the one before has written.
// Any other network is left to the kernels over many rows.
//
// Plain types, compiled by the host compiler and by NVRTC.
#pragma once

#include "kernels/policy/arguments.cuh"
#include "kernels/policy/network.cuh"

namespace exphil {
namespace policy {

// What writes a vector. `deep`: a product of rows that is not short.
enum class Writer : int { none, input, lead, convolution, deep, brief, mean, scan, output };

// Where a row's values of a vector are in memory: from value `at` on of a row of buffer `buffer`. A product's
// outputs share a buffer, which begins with vector `first`.
struct WindowVector {
  Writer writer = Writer::none;
  int buffer = 0, first = kNoVector, at = 0;
  bool in_rows = false;    // a product of rows reads it
  bool convolved = false;  // a convolution reads it
  bool averaged = false;   // a mean reads it
  bool in_time = false;    // a scan reads it at every step
  bool at_end = false;     // a scan reads it where it has an output

  constexpr bool kept() const { return in_time || at_end; }
  // Of the last layer it is needed for the last frames only.
  constexpr bool late() const { return at_end && !in_time && !convolved; }
};

struct WindowPlan {
  bool fits = false;        // the network has this shape
  int lead = 0, close = 0;  // products
  int rows_end = 1;         // phases [1, rows_end) of a layer are of rows; the others but the last one scans
  int history = 0;          // frames before a frame that convolutions read
  int buffers = 0, widths[kMostWindowBuffers] = {};  // values of a row of each buffer
  WindowVector vectors[kMostVectors] = {};

  constexpr explicit WindowPlan(const Network& n) {
    const int last = n.layer.count - 1;
    if (!ends_fit(n) || last < 1 || n.layer.phases[0].kind != Kind::product ||
        n.layer.phases[last].kind != Kind::product) {
      return;
    }
    lead = n.layer.phases[0].index, close = n.layer.phases[last].index;
    while (rows_end < last && n.layer.phases[rows_end].kind != Kind::scan) ++rows_end;
    bool all = plain(n, lead) && n.products[lead].in == n.hidden && !n.products[lead].is_short;
    write(n, n.products[lead], Writer::lead);
    for (int i = 1; i < rows_end; ++i) all = add_row_phase(n, n.layer.phases[i]) && all;
    for (int i = rows_end; i < last; ++i) all = add_scan(n, n.layer.phases[i]) && all;
    const Product& closing = n.products[close];
    all = all && closing.adds && !closing.is_short && closing.norm == Norm::none && closing.outputs == 1 &&
          closing.out[0].vector == n.hidden && vectors[closing.in].writer == Writer::scan;
    fits = all && late_ones_last(n) && buffers <= kMostWindowBuffers;
  }

  // The rows of the leading product that come before those of late outputs.
  constexpr int early_rows(const Network& n) const {
    const Product& p = n.products[lead];
    int rows = 0;
    for (int o = 0; o < p.outputs; ++o) rows += vectors[p.out[o].vector].late() ? 0 : n.size(p.out[o].vector);
    return rows;
  }

 private:
  static constexpr bool plain(const Network& n, int product) {
    const Product& p = n.products[product];
    return p.outputs > 0 && !p.adds && p.counted == 0 && p.counted_first == 0;
  }
  constexpr void write(const Network& n, const Product& p, Writer writer) {
    for (int o = 0; o < p.outputs; ++o) {
      WindowVector& to = vectors[p.out[o].vector];
      to.writer = writer, to.buffer = buffers, to.first = p.out[0].vector, to.at = first_row(n, p, o);
    }
    append_buffer(n.rows(p));
  }
  constexpr void write(const Network& n, int vector, Writer writer) {
    WindowVector& to = vectors[vector];
    to.writer = writer, to.buffer = buffers, to.first = vector;
    append_buffer(n.size(vector));
  }
  constexpr void append_buffer(int width) {
    if (buffers < kMostWindowBuffers) widths[buffers] = width;
    ++buffers;
  }

  // The input and the output block.
  constexpr bool ends_fit(const Network& n) {
    if (n.input.count != 1 || n.input.phases[0].kind != Kind::product) return false;
    if (n.input.count + n.layer.count + n.output.count > kMostWindowPhases) return false;
    const Product& input = n.products[n.input.phases[0].index];
    bool all = input.in == n.frame && input.outputs == 1 && input.out[0].vector == n.hidden &&
               input.norm == Norm::none && !input.is_short && !input.adds;
    write(n, input, Writer::input);
    int read = n.hidden;
    for (int i = 0; i < n.output.count; ++i) {
      if (n.output.phases[i].kind != Kind::product) return false;
      const Product& p = n.products[n.output.phases[i].index];
      all = all && plain(n, n.output.phases[i].index) && !p.is_short && p.outputs == 1 && p.in == read &&
            (i == 0 || p.norm == Norm::none);
      read = p.out[0].vector;
      if (read != n.outs) write(n, p, Writer::output);
    }
    return all && read == n.outs;
  }

  constexpr bool add_row_phase(const Network& n, const Phase& phase) {
    if (phase.kind == Kind::convolution) {
      const Convolution& c = n.convolutions[phase.index];
      vectors[c.in].convolved = true;
      history = most(history, c.taps - 1);
      write(n, c.out, Writer::convolution);
      return vectors[c.in].writer == Writer::lead;
    }
    if (phase.kind == Kind::mean) {
      const Mean& m = n.means[phase.index];
      vectors[m.in].averaged = true;
      write(n, m.out, Writer::mean);
      return vectors[m.in].writer == Writer::brief;
    }
    if (phase.kind != Kind::product) return false;
    const Product& p = n.products[phase.index];
    vectors[p.in].in_rows = true;
    write(n, p, p.is_short ? Writer::brief : Writer::deep);
    const Writer before = p.is_short ? Writer::deep : Writer::convolution;
    return plain(n, phase.index) && p.norm == Norm::none && vectors[p.in].writer == before;
  }

  constexpr bool add_scan(const Network& n, const Phase& phase) {
    if (phase.kind != Kind::scan) return false;
    const Scan& s = n.scans[phase.index];
    bool all = true;
    const int read[] = {s.x, s.dt, s.b, s.c, s.input_dt, s.z};
    for (const int vector : read) {
      if (vector == kNoVector) continue;
      if (vector == s.z) {
        vectors[vector].at_end = true;
      } else {
        vectors[vector].in_time = true;
      }
      const Writer writer = vectors[vector].writer;
      all = all && writer != Writer::none && writer != Writer::input && writer < Writer::scan;
    }
    write(n, s.out, Writer::scan);
    return all;
  }

  constexpr bool late_ones_last(const Network& n) const {
    const Product& p = n.products[lead];
    bool late = false;
    for (int o = 0; o < p.outputs; ++o) {
      if (late && !vectors[p.out[o].vector].late()) return false;
      late = vectors[p.out[o].vector].late();
    }
    return true;
  }
};

}  // namespace policy
}  // namespace exphil
