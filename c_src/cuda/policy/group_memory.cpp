#include "cuda/policy/group_memory.hpp"

#include "cuda/device/quiet_context.hpp"
#include "cuda/policy/state_arena.hpp"

namespace exphil::cuda {

CudaGroupMemory::CudaGroupMemory(std::shared_ptr<Context> context, std::int64_t count, std::int64_t values,
                                 HeldBytes held)
    : context_(std::move(context)),
      count_(count),
      held_(std::move(held)),
      products_(context_->device_pool().allocate(static_cast<std::size_t>(count * values) * sizeof(float))),
      places_(
          context_->pinned_pool().allocate(2 * static_cast<std::size_t>(count) * sizeof(policy::StatePlace))),
      written_{Event(*context_), Event(*context_)} {
  *held_ += products_.bytes();
}

CudaGroupMemory::~CudaGroupMemory() {
  *held_ -= products_.bytes();
  const QuietContext current(context_->handle());
  context_->armed().cancel();
  for (const Event& event : written_) {
    context_->note(driver().cuEventSynchronize(event.handle()), "cuEventSynchronize");
  }
}

bool CudaGroupMemory::has(const core::State* const* states, std::int64_t count) const {
  if (first_stamp_ == 0 || count != count_) return false;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto stamp = first_stamp_ + static_cast<std::uint64_t>(i);
    if (static_cast<const CudaState*>(states[i])->stamp() != stamp) return false;
  }
  return true;
}

void CudaGroupMemory::begin() {
  first_stamp_ = 0;
  table_ = 1 - table_, is_written_ = false;
}

const policy::StatePlace* CudaGroupMemory::next_places(const policy::StatePlace* places, std::int64_t rows) {
  written_[table_].synchronize();
  const std::int64_t at = table_ * count_;
  auto* const table = places_.as<policy::StatePlace>() + at;
  for (std::int64_t i = 0; i < rows; ++i) table[i] = {places[i].to, nullptr};
  return as_pointer<policy::StatePlace>(places_.device_address()) + at;
}

void CudaGroupMemory::make_wait(CUstream stream) const {
  if (stream == last_stream_ || last_written_ == nullptr) return;
  context_->check(driver().cuStreamWaitEvent(stream, last_written_, 0), "cuStreamWaitEvent");
}

void CudaGroupMemory::written_by(CUstream stream) {
  written_[table_].record(stream);
  last_stream_ = stream, last_written_ = written_[table_].handle();
  is_written_ = true;
}

void CudaGroupMemory::commit(std::uint64_t first_stamp) {
  if (is_written_) first_stamp_ = first_stamp;
}

}  // namespace exphil::cuda
