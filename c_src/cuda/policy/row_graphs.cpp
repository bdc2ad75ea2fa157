#include "cuda/policy/row_graphs.hpp"

#include <algorithm>

#include "cuda/device/quiet_context.hpp"
#include "cuda/device/slow_call.hpp"

namespace exphil::cuda {
namespace {

// Jobs with the same key before a graph is made for it, and keys that are remembered, of which the one that
// was not used for longest is forgotten. To make one takes some hundred microseconds and ends launches ahead:
// too much for a size that is soon forgotten. Of frames that gather to batches of twelve sizes at random
// every seventh job would make a graph with three jobs and eight keys; with these no mix of sizes makes one
// in more than a hundred (simulated).
constexpr int kEnough = 32;
constexpr std::size_t kMostGraphs = 16;

}  // namespace

bool RowGraphs::Key::operator==(const Key& other) const {
  return rows == other.rows && keep_states == other.keep_states && decays_input == other.decays_input &&
         out == other.out && ahead == other.ahead && buffers == other.buffers;
}

RowGraphs::~RowGraphs() {
  for (const Graph& graph : graphs_) destroy(graph);
}

void RowGraphs::destroy(const Graph& graph) {
  if (graph.executable == nullptr) return;
  const QuietContext current(context_.handle());
  const SlowCall slow(&context_.armed());
  driver().cuGraphExecDestroy(graph.executable);
}

RowGraphs::Graph& RowGraphs::find(const Key& key) {
  const auto found =
      std::find_if(graphs_.begin(), graphs_.end(), [&](const Graph& graph) { return graph.key == key; });
  if (found != graphs_.end()) return *found;
  if (graphs_.size() == kMostGraphs) {
    const auto oldest = std::min_element(graphs_.begin(), graphs_.end(),
                                         [](const Graph& p, const Graph& q) { return p.used < q.used; });
    destroy(*oldest);
    graphs_.erase(oldest);
  }
  graphs_.emplace_back();
  graphs_.back().key = key;
  return graphs_.back();
}

void RowGraphs::enqueue(const RowKernels& kernels, CUstream stream, RowBuffers& buffers, const RowJob& job) {
  if (refused_) return kernels.enqueue(stream, buffers, job);
  Graph& graph = find({job.rows, job.keep_states, job.decays_input, job.out, job.ahead, buffers.version});
  graph.used = ++jobs_;
  if (graph.executable == nullptr && ++graph.jobs >= kEnough) {
    graph.executable = capture(kernels, stream, buffers, job);
  }
  if (graph.executable == nullptr) return kernels.enqueue(stream, buffers, job);
  context_.check(driver().cuGraphLaunch(graph.executable, stream), "cuGraphLaunch");
}

CUgraphExec RowGraphs::capture(const RowKernels& kernels, CUstream stream, RowBuffers& buffers,
                               const RowJob& job) {
  refused_ = driver().cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL) != CUDA_SUCCESS;
  if (refused_) return nullptr;
  CUgraph graph = nullptr;
  try {
    kernels.enqueue(stream, buffers, job);
  } catch (...) {
    if (driver().cuStreamEndCapture(stream, &graph) == CUDA_SUCCESS) driver().cuGraphDestroy(graph);
    throw;
  }
  refused_ = driver().cuStreamEndCapture(stream, &graph) != CUDA_SUCCESS;
  if (refused_) return nullptr;
  CUgraphExec executable = nullptr;
  const SlowCall slow(&context_.armed());
  refused_ = driver().cuGraphInstantiateWithFlags(&executable, graph, 0) != CUDA_SUCCESS;
  driver().cuGraphDestroy(graph);
  return refused_ ? nullptr : executable;
}

}  // namespace exphil::cuda
