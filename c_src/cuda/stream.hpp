// Streams, leased for the length of a call so that calls from different threads overlap.
#pragma once

#include <cuda.h>

#include <memory>
#include <mutex>
#include <vector>

namespace exphil::cuda {

class Context;

class StreamPool {
 public:
  explicit StreamPool(Context& context) : context_(context) {}
  ~StreamPool();
  CUstream take();  // non-blocking stream; created where none is free
  void give(CUstream stream);

 private:
  Context& context_;
  std::mutex mutex_;
  std::vector<CUstream> free_;
};

// A leased stream. synchronize() waits and throws what the work failed with.
class StreamLease {
 public:
  explicit StreamLease(Context& context);
  ~StreamLease();  // synchronises first, so that pooled buffers of the call are free to go
  StreamLease(const StreamLease&) = delete;
  StreamLease& operator=(const StreamLease&) = delete;
  CUstream handle() const { return stream_; }
  void synchronize();

 private:
  Context& context_;
  CUstream stream_;
};

}  // namespace exphil::cuda
