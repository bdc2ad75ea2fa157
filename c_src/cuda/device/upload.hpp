// Copies host tensors to one block of device memory, the image, in order and with several threads. Tensors
// that are in device memory already are copied on the device. Used by the operators' calls on host tensors
// and to load weights.
#pragma once

#include <cuda.h>

#include <condition_variable>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "core/device_ranges.hpp"
#include "cuda/device/context.hpp"

namespace exphil::cuda {

// One tensor's location in the image.
struct ImageSegment {
  const void* data;
  std::size_t at, bytes;
  bool on_device = false;  // set by Upload
};

class Upload {
 public:
  // segments in order of `at`, not overlapping; bytes between them are undefined. on_ready(i) is called once
  // for each element of `ends` in order, after the copies of the first ends[i] bytes of the image were queued
  // on `stream`, with the context current; from any of the threads, one at a time. on_device: where segments
  // lie in device memory; throws as require_shared_memory where they do not.
  Upload(Context& context, CUstream stream, CUdeviceptr image, std::vector<ImageSegment> segments,
         std::vector<std::size_t> ends, std::function<void(std::size_t)> on_ready,
         const core::DeviceRanges& on_device = {});

  // Copies everything; returns when the last on_ready has returned. The pinned blocks are in use until the
  // stream has been synchronised: keep the object until then.
  void run();

 private:
  void work();
  void wait_for_block(std::size_t piece);
  void fill(std::size_t piece);
  void finish(std::size_t piece);
  void queue_next();
  bool has_host_bytes(std::size_t begin, std::size_t end) const;
  void copy_on_device(std::size_t begin, std::size_t end);
  // Calls `copy` with the segment and the part of the image [from, to) for each that is in [begin, end).
  template <class Copy>
  void each_segment(std::size_t begin, std::size_t end, bool on_device, const Copy& copy) const;

  Context& context_;
  CUstream stream_;
  CUdeviceptr image_;
  std::vector<ImageSegment> segments_;
  std::vector<std::size_t> ends_;
  std::function<void(std::size_t)> on_ready_;

  std::size_t piece_bytes_ = 0, pieces_ = 0, blocks_ = 0;
  PinnedBuffer ring_;
  std::vector<std::unique_ptr<Event>> copied_;  // by ring block, where blocks are reused

  std::mutex mutex_;
  std::condition_variable queued_changed_;
  std::vector<bool> filled_;
  std::size_t next_ = 0;    // the next piece to fill
  std::size_t queued_ = 0;  // pieces whose copies have been queued, all in order
  std::size_t ready_ = 0;   // ends reported
  bool queueing_ = false;   // one thread queues, and only it changes queued_ and ready_
  bool failed_ = false;
};

// Copies all of it, and returns when it is there.
void upload_now(Context& context, CUdeviceptr image, std::vector<ImageSegment> segments);

}  // namespace exphil::cuda
