// Lays out the image, cuts the batch, and queues kernels and results as slices arrive; see runner.hpp.
#include "cuda/scan/runner.hpp"

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "cuda/device/upload.hpp"
#include "cuda/scan/launcher.hpp"
#include "cuda/scan/slice.hpp"

namespace exphil::cuda {
namespace {

using core::ScanOutputs;
using core::ScanProblem;

// Below this a slice's launch and copies cost more than the overlap gains.
constexpr std::size_t kSmallestSlice = std::size_t{1} << 20;
constexpr std::int64_t kMostSlices = 16;
constexpr std::size_t kAlignment = 256;

// Hands out aligned places one after another.
class Cursor {
 public:
  std::size_t take(std::size_t bytes) {
    const std::size_t place = at_;
    at_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
    return place;
  }
  std::size_t at() const { return at_; }

 private:
  std::size_t at_ = 0;
};

// A slice of the batch: the problem and outputs on the host, and the same on the device.
struct Slice {
  ScanProblem host, device;
  ScanOutputs host_out, device_out;
};

// Where device memory is known only later: offsets stand in for addresses until shift().
template <class T>
T* offset_pointer(std::size_t offset) {
  return reinterpret_cast<T*>(offset);
}

class Image {
 public:
  explicit Image(const ScanProblem& p, const ScanOutputs& out) {
    const ScanProblem shared = add_shared(p);
    const ScanBytes all = scan_bytes(p);
    const std::size_t input =
        2 * all.x + all.z + (p.b_layout.constant ? 0 : all.b) + (p.c_layout.constant ? 0 : all.c);
    const std::int64_t most = std::min<std::int64_t>({kMostSlices, std::max<std::int64_t>(1, p.batch),
                                                      1 + static_cast<std::int64_t>(input / kSmallestSlice)});
    const std::int64_t per_slice = std::max<std::int64_t>(1, (p.batch + most - 1) / most);
    for (std::int64_t begin = 0; begin < p.batch; begin += per_slice) {
      const std::int64_t count = std::min(per_slice, p.batch - begin);
      Slice slice;
      slice.host = slice_batch(p, begin, count);
      slice.host_out = slice_batch(p, out, begin);
      add_inputs(shared, &slice);
      ends_.push_back(inputs_.at());
      slices_.push_back(slice);
    }
    for (Slice& slice : slices_) add_outputs(&slice);
  }

  std::size_t bytes() const { return inputs_.at() + outputs_.at(); }
  const std::vector<ImageSegment>& segments() const { return segments_; }
  const std::vector<std::size_t>& ends() const { return ends_; }
  std::vector<Slice>& slices() { return slices_; }

  // Turns offsets into device addresses.
  void place(CUdeviceptr base) {
    for (Slice& slice : slices_) {
      ScanProblem& d = slice.device;
      shift(base, &d.x), shift(base, &d.dt), shift(base, &d.z), shift(base, &d.b), shift(base, &d.c);
      shift(base, &d.a), shift(base, &d.d), shift(base, &d.dt_bias), shift(base, &d.initial_state);
      const CUdeviceptr out = base + inputs_.at();
      ScanOutputs& o = slice.device_out;
      const ScanOutputs& wanted = slice.host_out;
      if (wanted.y != nullptr) shift(out, &o.y);
      if (wanted.y_reverse != nullptr) shift(out, &o.y_reverse);
      if (wanted.final_state != nullptr) shift(out, &o.final_state);
      if (wanted.states != nullptr) shift(out, &o.states);
    }
  }

 private:
  // Left-out tensors keep their null; a given one at offset 0 is null as well until place(), hence the flag
  // bit: offsets are multiples of kAlignment, so bit 0 marks "given".
  template <class T>
  static void shift(CUdeviceptr base, T** pointer) {
    const std::size_t offset = reinterpret_cast<std::size_t>(*pointer);
    if (offset != 0) *pointer = reinterpret_cast<T*>(base + (offset & ~std::size_t{1}));
  }
  template <class T>
  T* add(T* data, std::size_t bytes) {
    if (data == nullptr || bytes == 0) return nullptr;
    const std::size_t at = inputs_.take(bytes);
    segments_.push_back({data, at, bytes});
    return offset_pointer<T>(at | 1);
  }

  ScanProblem add_shared(const ScanProblem& p) {
    const ScanBytes bytes = scan_bytes(p);
    ScanProblem shared;
    shared.a = add(p.a, bytes.a);
    shared.d = add(p.d, bytes.d);
    shared.dt_bias = add(p.dt_bias, bytes.dt_bias);
    if (p.b_layout.constant) shared.b = add(p.b, bytes.b);
    if (p.c_layout.constant) shared.c = add(p.c, bytes.c);
    return shared;
  }

  void add_inputs(const ScanProblem& shared, Slice* slice) {
    const ScanProblem& h = slice->host;
    const ScanBytes bytes = scan_bytes(h);
    ScanProblem& d = slice->device;
    d = h;
    d.a = shared.a, d.d = shared.d, d.dt_bias = shared.dt_bias;
    d.b = h.b_layout.constant ? shared.b : add(h.b, bytes.b);
    d.c = h.c_layout.constant ? shared.c : add(h.c, bytes.c);
    d.initial_state = add(h.initial_state, bytes.state);
    d.x = add(h.x, bytes.x);
    d.dt = add(h.dt, bytes.x);
    d.z = add(h.z, bytes.z);
  }

  void add_outputs(Slice* slice) {
    const ScanBytes bytes = scan_bytes(slice->host);
    const auto reserve = [&](std::size_t size) { return outputs_.take(size) | 1; };
    ScanOutputs& d = slice->device_out;
    const ScanOutputs& wanted = slice->host_out;
    if (wanted.y != nullptr) d.y = offset_pointer<void>(reserve(bytes.x));
    if (wanted.y_reverse != nullptr) d.y_reverse = offset_pointer<void>(reserve(bytes.x));
    if (wanted.final_state != nullptr) d.final_state = offset_pointer<float>(reserve(bytes.state));
    if (wanted.states != nullptr) d.states = offset_pointer<float>(reserve(bytes.states));
  }

  Cursor inputs_, outputs_;
  std::vector<ImageSegment> segments_;
  std::vector<std::size_t> ends_;
  std::vector<Slice> slices_;
};

// Results on their way back: straight into pinned memory, else through it.
class Download {
 public:
  explicit Download(Context& context) : context_(context) {}

  void add(CUstream stream, void* to, const void* from, std::size_t bytes) {
    if (to == nullptr || bytes == 0) return;
    void* target = to;
    if (!pinned(to, bytes)) {
      Staged staged{to, bytes, context_.pinned_pool().try_allocate(bytes)};
      if (staged.buffer) {
        target = staged.buffer.data();
        staged_.push_back(std::move(staged));
      }  // else straight into pageable memory: slower, and this call waits for it
    }
    context_.check(driver().cuMemcpyDtoHAsync(target, reinterpret_cast<CUdeviceptr>(from), bytes, stream),
                   "cuMemcpyDtoHAsync");
  }

  // After the streams have been synchronised.
  void finish() {
    for (const Staged& s : staged_) std::memcpy(s.to, s.buffer.data(), s.bytes);
  }

 private:
  struct Staged {
    void* to;
    std::size_t bytes;
    PinnedBuffer buffer;
  };

  static bool pinned(void* data, std::size_t bytes) {
    CUdeviceptr address;
    char* bytes_begin = static_cast<char*>(data);
    return driver().cuMemHostGetDevicePointer(&address, bytes_begin, 0) == CUDA_SUCCESS &&
           driver().cuMemHostGetDevicePointer(&address, bytes_begin + bytes - 1, 0) == CUDA_SUCCESS;
  }

  Context& context_;
  std::vector<Staged> staged_;
};

}  // namespace

void run_scan(Context& context, const ScanProblem& problem, const ScanOutputs& outputs) {
  const ContextGuard guard(context);
  if (problem.batch == 0 || problem.dim == 0) return;
  Image image(problem, outputs);
  const DeviceBuffer memory = context.device_pool().allocate(image.bytes());
  image.place(memory.address());
  Download download(context);
  std::vector<std::unique_ptr<Event>> arrived;
  for (std::size_t i = 0; i < image.slices().size(); ++i) arrived.push_back(std::make_unique<Event>(context));

  // Destroyed in reverse order: the streams are idle before the buffers they use go back. Two streams take
  // the slices in turns, so that a slice's results and the next slice's kernel overlap.
  std::unique_ptr<ScanUpload> upload;
  const StreamLease copies(context);
  StreamLease work[2] = {StreamLease(context), StreamLease(context)};
  const auto start_slice = [&](std::size_t i) {
    const Slice& slice = image.slices()[i];
    const CUstream stream = work[i % 2].handle();
    arrived[i]->record(copies.handle());
    arrived[i]->make_wait(stream);
    launch_scan(context, stream, slice.device, slice.device_out);
    const ScanBytes bytes = scan_bytes(slice.host);
    download.add(stream, slice.host_out.y, slice.device_out.y, bytes.x);
    download.add(stream, slice.host_out.y_reverse, slice.device_out.y_reverse, bytes.x);
    download.add(stream, slice.host_out.final_state, slice.device_out.final_state, bytes.state);
    download.add(stream, slice.host_out.states, slice.device_out.states, bytes.states);
  };
  upload = std::make_unique<ScanUpload>(context, copies.handle(), memory.address(), image.segments(),
                                        image.ends(), start_slice);
  upload->run();
  for (StreamLease& stream : work) stream.synchronize();
  download.finish();
}

}  // namespace exphil::cuda
