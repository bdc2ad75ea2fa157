#include "cuda/policy/states_ahead.hpp"

#include "cuda/device/stream_copy.hpp"
#include "cuda/policy/frame_rows.hpp"

namespace exphil::cuda {
namespace {

std::int64_t rows_of(const std::vector<Slice>& slices) {
  std::int64_t rows = 0;
  for (const Slice& slice : slices) rows += slice.job.rows;
  return rows;
}

}  // namespace

StatesAhead::StatesAhead(Context& context, const RowKernels& kernels, const PolicyTuning& tuning,
                         StreamPriority priority)
    : context_(context), kernels_(kernels), tuning_(tuning), stream_(context, priority), done_(context) {}

void StatesAhead::reserve(std::int64_t rows) {
  if (rows <= capacity_) return;
  const std::int64_t capacity = capacity_for(rows);
  const auto count = static_cast<std::size_t>(capacity),
             values = static_cast<std::size_t>(kernels_.values_ahead());
  capacity_ = 0;  // until both have succeeded
  states_ = context_.pinned_pool().allocate(count * sizeof(policy::StatePlace));
  values_ = context_.device_pool().allocate(count * values * sizeof(float));
  capacity_ = capacity;
}

bool StatesAhead::takes(const std::vector<Slice>& slices) const {
  if (slices.empty() || slices.front().states == nullptr) return false;
  std::int64_t rows = 0;
  for (const Slice& slice : slices) {
    if (!slice.job.batch || slice.states != slices.front().states + rows) return false;
    if (slice.job.rows > tuning_.cell_batch) return false;
    rows += slice.job.rows;
  }
  return true;
}

CUevent StatesAhead::begin(const std::vector<Slice>& slices, CUevent after) {
  const std::int64_t rows = rows_of(slices);
  if (!takes(slices) || rows < tuning_.ahead_rows) return after;
  reserve(rows);
  first_ = slices.front().states;
  stream_copy(states_.data(), first_, static_cast<std::size_t>(rows) * sizeof(policy::StatePlace));
  const CUstream stream = stream_.handle();
  context_.check(driver().cuStreamWaitEvent(stream, after, 0), "cuStreamWaitEvent");
  // A block reads its few from host memory sooner than a copy of them all would begin.
  kernels_.enqueue_ahead(stream, as_pointer<policy::StatePlace>(states_.device_address()), rows,
                         values_.as<float>());
  done_.record(stream);
  found_ = values_.as<float>();
  return done_.handle();
}

CUevent StatesAhead::begin_known(const std::vector<Slice>& slices, const CudaGroupMemory& group,
                                 CUstream alone, CUevent after) {
  found_ = group.products(), first_ = slices.front().states;
  group.make_wait(slices.size() == 1 ? alone : stream_.handle());
  if (slices.size() == 1) return after;
  context_.check(driver().cuStreamWaitEvent(stream_.handle(), after, 0), "cuStreamWaitEvent");
  done_.record(stream_.handle());
  return done_.handle();
}

void StatesAhead::begin_next(const std::vector<Slice>& slices, CudaGroupMemory& group, CUstream alone,
                             const std::vector<CUevent>& after) {
  const CUstream stream = slices.size() == 1 ? alone : stream_.handle();
  for (std::size_t i = 0; slices.size() > 1 && i < after.size(); ++i) {
    context_.check(driver().cuStreamWaitEvent(stream, after[i], 0), "cuStreamWaitEvent");
  }
  const std::int64_t rows = rows_of(slices);
  group.make_wait(stream);
  kernels_.enqueue_ahead(stream, group.next_places(slices.front().states, rows), rows, group.products());
  group.written_by(stream);
}

const float* StatesAhead::of(const Slice& slice) const {
  return found_ == nullptr ? nullptr : found_ + (slice.states - first_) * kernels_.values_ahead();
}

void StatesAhead::drop() noexcept {
  end();
  context_.note(driver().cuStreamSynchronize(stream_.handle()), "cuStreamSynchronize");
}

}  // namespace exphil::cuda
