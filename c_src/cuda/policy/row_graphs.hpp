// The launches of a slice of a batch as one: where slices of as many agents come again and again, a lane
// launches a graph of them. That takes the thread, which may have other slices to send, some microseconds,
// where twenty launches take three or four each, and the device may be done with one before the next is
// there. Used by cuda/policy/slice_lanes.cpp: one object for each lane, one thread at a time, with the
// context current.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <vector>

#include "cuda/device/context.hpp"
#include "cuda/policy/rows.hpp"

namespace exphil::cuda {

class RowGraphs {
 public:
  explicit RowGraphs(Context& context) : context_(context) {}
  ~RowGraphs();  // no launch of them may be in flight
  RowGraphs(const RowGraphs&) = delete;
  RowGraphs& operator=(const RowGraphs&) = delete;

  // As RowKernels::enqueue, of a batch.
  void enqueue(const RowKernels& kernels, CUstream stream, RowBuffers& buffers, const RowJob& job);

 private:
  // Everything that decides the launches and their arguments: a graph is used again only where it is the
  // same.
  struct Key {
    std::int64_t rows = 0;
    bool keep_states = false, decays_input = false;
    const float *out = nullptr, *ahead = nullptr;
    std::uint64_t buffers = 0;  // RowBuffers::version
    bool operator==(const Key& other) const;
  };
  struct Graph {
    Key key;
    std::uint64_t used = 0;            // the number of the last job with this key
    int jobs = 0;                      // how many jobs had it
    CUgraphExec executable = nullptr;  // null before there were kEnough
  };

  Graph& find(const Key& key);
  // Null where the driver refuses graphs.
  CUgraphExec capture(const RowKernels& kernels, CUstream stream, RowBuffers& buffers, const RowJob& job);
  void destroy(const Graph& graph);

  Context& context_;
  std::vector<Graph> graphs_;
  std::uint64_t jobs_ = 0;
  bool refused_ = false;
};

}  // namespace exphil::cuda
