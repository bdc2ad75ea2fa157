// The two pools; see memory.hpp, pool_state.hpp and block_list.hpp.
#include "cuda/device/memory.hpp"

#include <utility>

#include "core/error.hpp"
#include "cuda/device/context.hpp"
#include "cuda/device/pinned_pages.hpp"
#include "cuda/device/pool_state.hpp"

namespace exphil::cuda {

using core::ErrorKind;
using core::fail;

class DeviceBuffer::Impl : public PoolState<CUdeviceptr> {
  using PoolState::PoolState;
};

DeviceBuffer::DeviceBuffer(DeviceBuffer&& other) noexcept
    : address_(std::exchange(other.address_, 0)),
      bytes_(std::exchange(other.bytes_, 0)),
      block_(std::exchange(other.block_, 0)),
      owner_(std::move(other.owner_)) {}

DeviceBuffer& DeviceBuffer::operator=(DeviceBuffer&& other) noexcept {
  DeviceBuffer taken(std::move(other));  // destroyed with the old contents
  std::swap(address_, taken.address_);
  std::swap(bytes_, taken.bytes_);
  std::swap(block_, taken.block_);
  owner_.swap(taken.owner_);
  return *this;
}

DeviceBuffer::~DeviceBuffer() {
  if (owner_) owner_->give_back(address_, block_);
}

DevicePool::DevicePool(Context& context)
    : context_(context), impl_(std::make_shared<DeviceBuffer::Impl>(context.handle(), &context.armed())) {}

DevicePool::~DevicePool() {
  impl_->close();
}

DeviceBuffer DevicePool::allocate(std::size_t bytes) {
  DeviceBuffer buffer;
  const std::size_t size = block_size(bytes);
  if (impl_->waiting() > context_.properties().total_memory / 4) impl_->trim();
  if (!impl_->take(size, &buffer.address_, &buffer.block_)) {
    const ContextGuard guard(context_);
    const SlowCall slow(&context_.armed());
    CUresult result = driver().cuMemAlloc(&buffer.address_, size);
    if (result == CUDA_ERROR_OUT_OF_MEMORY) {
      impl_->trim();
      result = driver().cuMemAlloc(&buffer.address_, size);
    }
    if (result == CUDA_ERROR_OUT_OF_MEMORY) {
      std::size_t free = 0, total = 0;
      driver().cuMemGetInfo(&free, &total);
      fail(ErrorKind::out_of_memory, "", "device ", context_.properties().index, " (",
           context_.properties().name, ") is out of memory: ", bytes, " bytes requested, ", free, " of ",
           total, " free, ", impl_->held(), " held by this library");
    }
    context_.check(result, "cuMemAlloc");
    impl_->reserve(size, SIZE_MAX);
    buffer.block_ = size;
  }
  buffer.bytes_ = bytes;
  buffer.owner_ = impl_;
  return buffer;
}

std::size_t DevicePool::held_bytes() const {
  return impl_->held();
}
std::size_t DevicePool::waiting_bytes() const {
  return impl_->waiting();
}
void DevicePool::trim() {
  impl_->trim();
}

class PinnedBuffer::Impl : public PoolState<PinnedBlock> {
 public:
  Impl(CUcontext context, std::size_t limit) : PoolState(context, nullptr), shares(limit) {}
  PinnedShares shares;
};

PinnedBuffer::PinnedBuffer(PinnedBuffer&& other) noexcept
    : use_(other.use_),
      block_(std::exchange(other.block_, {})),
      bytes_(std::exchange(other.bytes_, 0)),
      block_bytes_(std::exchange(other.block_bytes_, 0)),
      owner_(std::move(other.owner_)) {}

PinnedBuffer& PinnedBuffer::operator=(PinnedBuffer&& other) noexcept {
  PinnedBuffer taken(std::move(other));  // leaves with what this held
  std::swap(use_, taken.use_);
  std::swap(block_, taken.block_);
  std::swap(bytes_, taken.bytes_);
  std::swap(block_bytes_, taken.block_bytes_);
  owner_.swap(taken.owner_);
  return *this;
}

PinnedBuffer::~PinnedBuffer() {
  if (!owner_) return;
  owner_->give_back(block_, block_bytes_);
  owner_->shares.leave(use_, bytes_);  // last: who waits finds the block
}

PinnedPool::PinnedPool(Context& context, std::size_t limit_bytes)
    : context_(context),
      limit_(limit_bytes),
      impl_(std::make_shared<PinnedBuffer::Impl>(context.handle(), limit_bytes)) {}

PinnedPool::~PinnedPool() {
  impl_->close();
}

PinnedBuffer PinnedPool::obtain(PinnedUse use, std::size_t bytes) {
  PinnedBuffer buffer;
  PinnedBlock block{};
  std::size_t size = block_size(bytes);
  try {
    // A result may be kept for long, so it gets no larger block than it needs.
    const std::size_t limit = use == PinnedUse::staging ? limit_ : SIZE_MAX;
    if (!impl_->take_within(size, limit, &block, &size) && !allocate_block(size, &block)) {
      impl_->shares.withdraw(use, bytes);
      return buffer;
    }
  } catch (...) {
    impl_->shares.withdraw(use, bytes);
    throw;
  }
  buffer.use_ = use;
  buffer.block_ = block;
  buffer.bytes_ = bytes;
  buffer.block_bytes_ = size;
  buffer.owner_ = impl_;
  return buffer;
}

namespace {

CUresult pin(std::size_t size, PinnedBlock* block) {
  if (size >= kHugePage) return pin_pages(size, block);
  const SlowCall slow;
  return driver().cuMemHostAlloc(&block->data, size, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
}

}  // namespace

// A new block, counted as held. False where the system refuses.
bool PinnedPool::allocate_block(std::size_t size, PinnedBlock* block) {
  const ContextGuard guard(context_);
  impl_->make_room(size, limit_);
  CUresult result = pin(size, block);
  if (result == CUDA_ERROR_OUT_OF_MEMORY && impl_->waiting() > 0) {
    impl_->trim();
    result = pin(size, block);
  }
  if (result == CUDA_SUCCESS) {
    result = driver().cuMemHostGetDevicePointer(&block->device_address, block->data, 0);
    if (result != CUDA_SUCCESS) free_block(*block);
  }
  if (result != CUDA_SUCCESS) impl_->unreserve(size);
  // The host, or a lower limit for locked pages, may run out before ours.
  if (result == CUDA_ERROR_OUT_OF_MEMORY) return false;
  context_.check(result, size < kHugePage ? "cuMemHostAlloc" : "cuMemHostRegister");
  return true;
}

PinnedBuffer PinnedPool::allocate(std::size_t bytes) {
  impl_->shares.keep(bytes);
  PinnedBuffer buffer = obtain(PinnedUse::kept, bytes);
  if (!buffer) fail_refused(bytes);
  return buffer;
}

PinnedBuffer PinnedPool::try_allocate(std::size_t bytes) {
  if (!impl_->shares.try_result(bytes)) return {};
  return obtain(PinnedUse::result, bytes);
}

PinnedBuffer PinnedPool::try_stage(std::size_t bytes) {
  if (!impl_->shares.try_staging(bytes)) return {};
  return obtain(PinnedUse::staging, bytes);
}

PinnedBuffer PinnedPool::stage(std::size_t least, std::size_t wanted) {
  std::size_t granted = impl_->shares.enter_staging(least, wanted);
  for (;;) {
    const std::uint64_t given_back = impl_->shares.given_back();
    if (PinnedBuffer buffer = obtain(PinnedUse::staging, granted)) return buffer;
    // The system has less than our share.
    if (granted > least) {
      granted = impl_->shares.enter_staging(least, least);
      continue;
    }
    // Where others hold some, the next of them to end makes room.
    const auto again = impl_->shares.enter_staging_after_another(least, given_back);
    if (!again) fail_refused(least);
    granted = *again;
  }
}

void PinnedPool::fail_refused(std::size_t bytes) const {
  fail(ErrorKind::out_of_memory, "", "no pinned memory: the system refused ", bytes, " bytes, ",
       impl_->held(), " are held");
}

std::size_t PinnedPool::held_bytes() const {
  return impl_->held();
}
std::size_t PinnedPool::staging_calls_waiting() const {
  return static_cast<std::size_t>(impl_->shares.waiting());
}

std::size_t PinnedPool::waiting_bytes() const {
  return impl_->waiting();
}
void PinnedPool::trim() {
  impl_->trim();
}

}  // namespace exphil::cuda
