#include "cuda/policy/slices.hpp"

#include <algorithm>
#include <numeric>

#include "cuda/device/download.hpp"
#include "cuda/divide_up.hpp"
#include "cuda/policy/kept_ring.hpp"

namespace exphil::cuda {
namespace {

// A batch of one slice is launched as a graph where it is so many launches: 256 Mamba agents, of twelve, take
// 91 us where they take 97 launch by launch, of a GRU, of three, as long.
constexpr int kGraphAlone = 8;

// Where a batch has more agents in a slice of each lane, its slices are as large as they may be.
constexpr std::int64_t kMostTogether = 1024;

// Windows of cells that recall their state. A slice has as many as a walk takes, because that takes as long
// for fewer, and at most so many times the rows of other slices; and two lanes have such slices, because more
// walks only compete for the device. 512 windows of 60 frames of a GRU take 2450 us where slices of 4,096
// rows on four lanes took 2850. Where each frame is launches of its own, they take little longer for many
// windows than for few.
constexpr std::int64_t kRecalledRows = 8, kRecalledLanes = RowKernels::kWalksSideBySide;

const policy::KeptRing* kept_of(const core::AgentWindow& window) {
  return static_cast<const CudaRing*>(window.ring)->kept();
}

}  // namespace

SlicePipeline::SlicePipeline(std::shared_ptr<Context> context, const PolicyDims& dims,
                             const RowKernels& kernels, const PolicyTuning& tuning, OrderedStream& stream,
                             StreamPriority priority)
    : context_(std::move(context)),
      dims_(dims),
      kernels_(kernels),
      tuning_(tuning),
      stream_(stream),
      lanes_(*context_, dims, kernels, tuning, priority) {
  if (kernels.frame() != nullptr) frame_.emplace(*context_, dims, kernels, tuning, priority);
}

bool SlicePipeline::batch(std::int64_t count, const BatchRows& rows, bool grouped, const SliceHooks& hooks,
                          Turn turn) {
  std::vector<Slice> slices;
  const bool one = is_one_launch(count, grouped);
  const std::int64_t each = one ? count : batch_rows(count);
  const auto bytes = static_cast<std::size_t>(count * dims_.outputs()) * sizeof(float);
  const bool ask = rows.rows == nullptr && bytes >= static_cast<std::size_t>(tuning_.pinned_answers);
  const CUdeviceptr pinned_out = ask ? pinned_address(rows.out, bytes) : 0;
  for (std::int64_t first = 0; first < count; first += each) {
    Slice slice;
    slice.job.batch = true;
    slice.job.rows = std::min(each, count - first);
    slice.job.decays_input = dims_.carried_decays();
    slice.job.shares = count > each;
    slice.graphs = tuning_.graphs != 0 && (slice.job.shares || kernels_.launches() >= kGraphAlone);
    slice.obs = rows.obs, slice.out = rows.out;
    if (rows.rows != nullptr) {
      slice.rows = rows.rows + first;
    } else {
      slice.obs += first * dims_.config.d_input, slice.out += first * dims_.outputs();
      const auto before = static_cast<CUdeviceptr>(first * dims_.outputs()) * sizeof(float);
      if (pinned_out != 0) slice.pinned_out = pinned_out + before;
    }
    slices.push_back(slice);
  }
  if (!one) return run(slices, false, std::move(turn), hooks);
  return run_after_others(turn,
                          [&](const StartEvent& start) { return frame_->run(slices.front(), start, hooks); });
}

// A multiple of agents_together: batches of any size then have slices of few sizes, for which there are
// graphs.
std::int64_t SlicePipeline::batch_rows(std::int64_t count) const {
  const std::int64_t least = std::max<std::int64_t>(1, tuning_.agents_together);
  const std::int64_t all = least * lanes_.count();
  const std::int64_t each = least * std::max<std::int64_t>(1, (count + all - 1) / all);
  return each <= kMostTogether ? std::min(each, most_rows()) : most_rows();
}

bool SlicePipeline::is_one_launch(std::int64_t count, bool known) const {
  if (!frame_) return false;
  return kernels_.frame()->takes(count, known || tuning_.batch_frame > 1);
}

void SlicePipeline::reserve_batch(std::int64_t count) {
  if (count <= reserved_) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  // Fewer agents may go another way than so many: in one launch, or in as many slices of fewer rows.
  if (frame_) frame_->reserve(std::min(count, kernels_.frame()->most()));
  const std::int64_t least = std::max<std::int64_t>(1, tuning_.agents_together), each = batch_rows(count);
  lanes_.reserve(divide_up(count, each), std::min(count, each));
  lanes_.reserve(std::min(divide_up(count, least), lanes_.count()), std::min({count, each, kMostTogether}));
  reserved_ = std::max<std::int64_t>(reserved_, count);
}

void SlicePipeline::reserve_windows(std::int64_t count, std::int64_t seq, std::int64_t least,
                                    bool has_rings) {
  const bool together = count >= least && seq <= most_rows();
  if (!together && has_rings) return;
  const std::int64_t length = std::min(seq, most_rows());
  // By itself a window is as many slices as it has parts.
  const std::int64_t all = together ? divide_up(count, window_rows(length) / length) : divide_up(seq, length),
                     slices = std::min(all, together ? window_lanes() : lanes_.count());
  // While windows grow, several slices may have more rows than with windows of full length.
  const std::int64_t rows = slices > 1 && together ? window_rows(length) : (together ? count : 1) * length;
  // Windows of several lengths have more slices.
  const std::int64_t mixed = together ? std::min(count, window_lanes()) : slices,
                     mixed_rows = std::min(count * length, most_rows());
  if (slices * rows + mixed * mixed_rows <= reserved_rows_) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  lanes_.reserve(slices, rows);
  lanes_.reserve(mixed, mixed_rows);
  lanes_.reserve_sequences(mixed, 1);
  reserved_rows_ = std::max<std::int64_t>(reserved_rows_, slices * rows + mixed * mixed_rows);
}

void SlicePipeline::sequence(const LongSequence& s) {
  const policy::StatePlace later{s.state.to, s.state.to};  // for the slices after the first
  std::vector<Slice> slices;
  for (std::int64_t first = 0; first < s.seq; first += most_rows()) {
    Slice slice;
    slice.job.rows = slice.job.seq = static_cast<int>(std::min(most_rows(), s.seq - first));
    slice.job.sequences = 1;
    slice.job.last_only = s.last_only;
    slice.job.decays_input = s.decays_input;
    slice.obs = s.frames + first * dims_.config.d_input;
    slice.states = first == 0 ? &s.state : &later;
    if (!s.last_only) slice.out = s.out + first * dims_.outputs();
    if (s.last_only && first + slice.job.rows == s.seq) slice.out = s.out;
    slices.push_back(slice);
  }
  run(slices, true, turn());
}

void SlicePipeline::windows(const float* windows, std::int64_t count, std::int64_t seq, float* out) {
  std::vector<Slice> slices;
  append_windows(count, seq, window_rows(seq), &slices);
  std::vector<const float*> each;
  for (std::int64_t i = 0; i < count; ++i) each.push_back(windows + i * seq * dims_.config.d_input);
  const float* const* next = each.data();
  for (Slice& slice : slices) {
    slice.windows = next, next += slice.job.sequences;
    slice.out = out, out += slice.job.sequences * dims_.outputs();
  }
  if (!slices.empty()) run(slices, false, turn(), {}, window_lanes());
}

bool SlicePipeline::answer(core::AgentWindow* windows, std::int64_t count, float* out) {
  const auto seq_of = [&](std::int64_t i) { return windows[i].ring_windows.seq; };
  std::vector<std::int64_t> order(static_cast<std::size_t>(count));
  std::iota(order.begin(), order.end(), 0);
  const auto shorter = [&](std::int64_t i, std::int64_t j) { return seq_of(i) < seq_of(j); };
  if (!std::is_sorted(order.begin(), order.end(), shorter)) {
    std::stable_sort(order.begin(), order.end(), shorter);
  }
  if (seq_of(order.back()) > most_rows()) return false;
  const bool mixed = seq_of(order.front()) != seq_of(order.back());
  std::vector<Slice> slices;
  for (auto first = order.begin(); first != order.end();) {
    const auto end = std::upper_bound(first, order.end(), *first, shorter);
    const std::int64_t seq = seq_of(*first);
    append_windows(end - first, seq, mixed ? most_rows() : window_rows(seq), &slices);
    first = end;
  }
  const std::int64_t* next = order.data();
  for (Slice& slice : slices) slice.out = out, slice.rows = next, next += slice.job.sequences;
  const bool kept =
      std::all_of(windows, windows + count, [](const core::AgentWindow& w) { return kept_of(w) != nullptr; });
  kept ? run_kept(windows, slices) : run_copied(windows, slices);
  for (std::int64_t i = 0; kept && i < count; ++i) windows[i].in_ring = true;
  return true;
}

std::int64_t SlicePipeline::window_rows(std::int64_t seq) const {
  const std::optional<int> walked = kernels_.walked_at_once();
  if (!walked) return most_rows();
  const std::int64_t most = kRecalledRows * most_rows();
  return *walked == 0 ? most : std::max(most_rows(), std::min(*walked * seq, most));
}
std::int64_t SlicePipeline::window_lanes() const {
  return kernels_.walked_at_once() ? std::min(kRecalledLanes, lanes_.count()) : lanes_.count();
}

// All of about the same size.
void SlicePipeline::append_windows(std::int64_t count, std::int64_t seq, std::int64_t most_rows,
                                   std::vector<Slice>* slices) const {
  const std::int64_t parts = divide_up(count, most_rows / seq);
  for (std::int64_t part = 0, first = 0; part < parts; ++part) {
    const std::int64_t end = count * (part + 1) / parts;
    Slice slice;
    slice.job.sequences = static_cast<int>(end - first);
    slice.job.seq = static_cast<int>(seq);
    slice.job.rows = slice.job.sequences * seq;
    slice.job.last_only = true;
    slice.job.decays_input = dims_.decays(seq);
    slices->push_back(slice);
    first = end;
  }
}

void SlicePipeline::run_copied(const core::AgentWindow* windows, std::vector<Slice>& slices) {
  std::vector<const float*> each;
  for (const Slice& slice : slices) {
    for (int i = 0; i < slice.job.sequences; ++i) each.push_back(windows[slice.rows[i]].frames);
  }
  const float* const* next = each.data();
  for (Slice& slice : slices) slice.windows = next, next += slice.job.sequences;
  run(slices, false, turn(), {}, window_lanes());
}

void SlicePipeline::run_kept(const core::AgentWindow* windows, std::vector<Slice>& slices) {
  std::vector<policy::KeptRing> rings;
  std::vector<const float*> frames;
  for (Slice& slice : slices) {
    const std::size_t begin = frames.size();
    for (int i = 0; i < slice.job.sequences; ++i) {
      const core::AgentWindow& window = windows[slice.rows[i]];
      rings.push_back(*kept_of(window));
      policy::KeptRing& ring = rings.back();
      ring.first = static_cast<int>(window.ring_windows.first);
      ring.fresh = static_cast<int>(window.ring_windows.fresh);
      ring.first_fresh = static_cast<int>(frames.size() - begin);
      for (int f = 0; f < ring.fresh; ++f) {
        frames.push_back(window.ring_windows.obs + f * dims_.config.d_input);
      }
    }
    slice.job.kept.emplace();
    slice.job.kept->fresh = static_cast<std::int64_t>(frames.size() - begin);
  }
  const policy::KeptRing* ring = rings.data();
  const float* const* frame = frames.data();
  for (Slice& slice : slices) {
    slice.rings = ring, ring += slice.job.sequences;
    slice.fresh = frame, frame += slice.job.kept->fresh;
  }
  run(slices, false, turn(), {}, window_lanes());
}

bool SlicePipeline::run(std::vector<Slice>& slices, bool chained, Turn turn, const SliceHooks& hooks,
                        std::int64_t lanes) {
  return run_after_others(
      turn, [&](const StartEvent& start) { return lanes_.run(slices, chained, start, hooks, lanes); });
}

template <class Work>
bool SlicePipeline::run_after_others(const Turn& /*turn*/, Work work) {
  Event before(*context_);
  return work([&] {
    const auto entered = stream_.enter();
    before.record(stream_.handle());
    return before.handle();
  });
}

}  // namespace exphil::cuda
