// Streams, leased for the duration of a call so that calls from different threads overlap, and events.
#pragma once

#include <cuda.h>

#include <memory>
#include <mutex>
#include <vector>

namespace exphil::cuda {

class Context;

// Frames have streams of the highest priority, so that they do not queue behind scans and prefills. `middle`
// is next to the lowest one.
enum class StreamPriority { low, middle, high };

// Safe from any thread.
class StreamPool {
 public:
  explicit StreamPool(Context& context) : context_(context) {}
  ~StreamPool();
  // A non-blocking stream; created where none is free.
  CUstream take(StreamPriority priority = StreamPriority::low);
  // The stream must be idle. Never throws: where the list cannot grow, the stream is destroyed.
  void give(CUstream stream, StreamPriority priority = StreamPriority::low) noexcept;
  void destroy(CUstream stream) noexcept;  // one that is no longer usable

 private:
  Context& context_;
  CUstream create(StreamPriority priority);

  std::mutex mutex_;
  std::vector<CUstream> free_[3];  // by their priority
};

// A leased stream. synchronize() waits and throws the error of the work. One thread at a time.
class StreamLease {
 public:
  explicit StreamLease(Context& context, StreamPriority priority = StreamPriority::low);
  ~StreamLease();  // synchronises first, so that the call's pooled buffers may be freed
  StreamLease(const StreamLease&) = delete;
  StreamLease& operator=(const StreamLease&) = delete;
  CUstream handle() const { return stream_; }
  void synchronize();

 private:
  Context& context_;
  const StreamPriority priority_;
  CUstream stream_;
};

// An event: orders work between streams, and measures time where created with timing. The context must
// outlive it. One thread at a time.
class Event {
 public:
  enum class Timing { off, on };
  explicit Event(Context& context, Timing timing = Timing::off);
  ~Event();
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  CUevent handle() const { return event_; }
  void record(CUstream stream);
  void make_wait(CUstream stream);  // later work of `stream` waits for this event
  void synchronize();
  bool done();                             // false while earlier work on its stream still runs
  float milliseconds_since(Event& start);  // both recorded and completed, both with timing

 private:
  Context& context_;
  CUevent event_ = nullptr;
};

}  // namespace exphil::cuda
