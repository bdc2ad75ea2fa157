#include "cuda/policy/window.hpp"

#include <algorithm>

#include "core/tensor.hpp"
#include "cuda/policy/clusters.hpp"
#include "cuda/policy/kept_ring.hpp"
#include "kernels/policy/window_layout.cuh"

namespace exphil::cuda {
namespace {

// Floats of a row.
std::int64_t hidden_width(const PolicyDims& dims) {
  return dims.network().size(dims.network().hidden);
}
std::int64_t lead_width(const PolicyDims& dims) {
  const policy::Network& n = dims.network();
  return n.rows(n.products[policy::WindowPlan(n).lead]);
}
std::int64_t outs_width(const PolicyDims& dims) {
  return dims.network().size(dims.network().outs);
}

}  // namespace

KernelSpec WindowShape::kernel(const PolicyDims& dims) const {
  if (team == 0) return {"policy/window.cu", "policy_window", dims.defines()};
  std::vector<std::string> defines = dims.defines();
  defines.insert(defines.end(), {define("TEAM", team), define("THREADS", threads), define("ROWS", rows),
                                 define("CLUSTER", team > 1 ? 1 : 0)});
  return {"policy/window_team.cu", "policy_window_team", defines};
}

long long WindowShape::shared_bytes(const PolicyDims& dims) const {
  const policy::Network& n = dims.network();
  return team == 0 ? policy::window_shared_bytes(n) : policy::WindowTeamLayout(n, *this).bytes;
}

std::vector<WindowShape> window_candidates(const DeviceProperties& device, const PolicyDims& dims,
                                           const PolicyTuning& tuning) {
  std::vector<WindowShape> shapes;
  if (tuning.window_blocks == 0 || dims.network().in_rows_alone()) return shapes;
  const auto append = [&](const WindowShape& shape) {
    const long long bytes = shape.shared_bytes(dims);
    if (bytes > 0 && bytes <= device.max_shared_per_block) shapes.push_back(shape);
  };
  const int team = tuning.window_team;
  if (team == 1 || (team > 1 && device.architecture() >= 90 && driver().cuLaunchKernelEx != nullptr)) {
    WindowShape shape;
    shape.team = team, shape.threads = tuning.window_threads;
    shape.rows = tuning.window_rows > 0 ? tuning.window_rows : std::max(4, team / 2);
    append(shape);
  }
  append(WindowShape{});
  return shapes;
}

// Every row is there twice, `slots` rows apart, so that the frames of a window are contiguous.
class WindowKernel::Ring final : public CudaRing {
 public:
  Ring(WindowKernel& kernel, std::int64_t ring_slots)
      : hidden(allocate(kernel, ring_slots, hidden_width(kernel.dims_))),
        lead(allocate(kernel, ring_slots, lead_width(kernel.dims_))),
        slots(ring_slots),
        kernel_(kernel),
        held_(kernel.held_) {
    held_->fetch_add(hidden.bytes() + lead.bytes());
    kept_.hidden = hidden.as<float>(), kept_.lead = lead.as<float>();
    kept_.slots = static_cast<int>(slots), kept_.copies = 2;
  }
  ~Ring() override { held_->fetch_sub(hidden.bytes() + lead.bytes()); }
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;

  void answer(const core::RingWindows& windows, float* out) override {
    const ContextGuard guard(*kernel_.context_);
    kernel_.answer(*this, windows, out);
  }
  const policy::KeptRing* kept() const override { return &kept_; }

  // {2 slots} rows: the hidden values, and the first layer's leading product (policy/window_plan.cuh).
  const DeviceBuffer hidden, lead;
  const std::int64_t slots;

 private:
  static DeviceBuffer allocate(WindowKernel& kernel, std::int64_t slots, std::int64_t width) {
    const std::int64_t floats =
        core::checked_multiply(core::checked_multiply(slots, 2, ":window"), width, ":window");
    const std::int64_t bytes = core::checked_multiply(floats, 4, ":window");
    return kernel.context_->device_pool().allocate(static_cast<std::size_t>(bytes));
  }

  WindowKernel& kernel_;
  const std::shared_ptr<std::atomic<std::size_t>> held_;
  policy::KeptRing kept_{};
};

WindowKernel::WindowKernel(std::shared_ptr<Context> context, const PolicyDims& dims,
                           const PolicyTuning& tuning, const RowKernels& rows, OrderedStream& stream)
    : context_(std::move(context)),
      dims_(dims),
      plan_(dims.network()),
      stream_(stream),
      held_(std::make_shared<std::atomic<std::size_t>>(0)),
      spin_microseconds_(tuning.spin_microseconds),
      inline_frame_(tuning.inline_obs != 0 && dims.frame_size() <= policy::kMostInlineObs) {
  for (const WindowShape& shape : window_candidates(context_->properties(), dims, tuning)) {
    append_launch(shape, tuning);
  }
  if (launches_.empty()) return;
  weights_ = rows.window_weights();
  barrier_ = context_->device_pool().allocate(sizeof(unsigned));
  context_->check(driver().cuMemsetD8Async(barrier_.address(), 0, sizeof(unsigned), stream.handle()),
                  "cuMemsetD8Async");
}

// Leaves out what the device refuses.
void WindowKernel::append_launch(const WindowShape& shape, const PolicyTuning& tuning) {
  const auto bytes = static_cast<unsigned>(shape.shared_bytes(dims_));
  CUfunction function = context_->kernels().get(shape.kernel(dims_), bytes);
  int blocks = 0;
  if (shape.team > 1) {
    if (!allow_cluster(function, shape.team)) return;
    const int teams = std::min(cluster_capacity(function, shape.team, shape.threads, bytes),
                               tuning.window_blocks / shape.team);
    blocks = teams * shape.team;
  } else {
    const int threads = shape.team == 0 ? policy::kWindowThreads : shape.threads;
    context_->check(driver().cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, function, threads, bytes),
                    "cuOccupancyMaxActiveBlocksPerMultiprocessor");
    blocks = std::min(blocks * context_->properties().multiprocessors, tuning.window_blocks);
  }
  if (blocks < 1) return;
  const std::int64_t rounds = tuning.window_rounds;
  launches_.push_back({shape, function, static_cast<unsigned>(blocks), bytes,
                       shape.team == 0 ? kMostRows : rounds * (blocks / shape.team) * shape.rows});
}

// Teams win where they take all frames at once. The bits are the same.
const WindowKernel::Launch& WindowKernel::launch_for(std::int64_t rows) const {
  const auto fits = [&](const Launch& kernel) { return rows <= kernel.most_rows; };
  const auto found = std::find_if(launches_.begin(), launches_.end(), fits);
  return found == launches_.end() ? launches_.back() : *found;
}

void WindowKernel::reserve(std::int64_t rows) {
  if (rows <= buffers_.capacity) return;
  std::int64_t capacity = 64;
  while (capacity < rows) capacity *= 2;
  std::size_t all = 0;
  const auto device = [&](std::int64_t width) {
    DeviceBuffer buffer = context_->device_pool().allocate(static_cast<std::size_t>(capacity * width) * 4);
    all += buffer.bytes();
    return buffer;
  };
  Buffers made;
  made.host_in =
      context_->pinned_pool().allocate(static_cast<std::size_t>(capacity * dims_.frame_size()) * 4);
  made.outputs = TaggedOutputs(*context_, static_cast<std::size_t>(capacity * outs_width(dims_)));
  made.in = device(dims_.frame_size());
  made.front_hidden = device(hidden_width(dims_)), made.front_lead = device(lead_width(dims_));
  made.last_hidden = device(hidden_width(dims_));
  const int hidden = plan_.vectors[dims_.network().hidden].buffer;
  for (int i = 0; i < plan_.buffers; ++i) made.values[i] = device((i == hidden ? 2 : 1) * plan_.widths[i]);
  made.capacity = capacity;
  buffers_ = std::move(made);
  buffer_bytes_ = all;
}

std::unique_ptr<core::FrameRing> WindowKernel::new_ring(std::int64_t slots) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    reserve(kMostRows);  // so that no later call allocates
  }
  return std::make_unique<Ring>(*this, slots);
}

void WindowKernel::answer(const Ring& ring, const core::RingWindows& windows, float* out) {
  std::lock_guard<std::mutex> lock(mutex_);
  const std::int64_t per_launch = std::max<std::int64_t>(1, kMostRows / windows.seq);
  for (std::int64_t first = 0; first < windows.count; first += per_launch) {
    policy::WindowArguments arguments = weights_;
    const std::int64_t count = std::min(per_launch, windows.count - first);
    // The fresh frames of the windows before these are in the ring, those of later ones not yet.
    const std::int64_t end = first + windows.seq + count - 1, all = windows.seq + windows.count - 1;
    const std::int64_t held = std::max(all - windows.fresh, first == 0 ? 0 : first + windows.seq - 1);
    arguments.front_hidden = ring.hidden.as<float>(), arguments.front_lead = ring.lead.as<float>();
    arguments.slots = static_cast<int>(ring.slots);
    arguments.first = static_cast<int>((windows.first + first) % ring.slots);
    arguments.front_step = 1;
    arguments.fresh = static_cast<int>(std::max<std::int64_t>(0, end - held));
    arguments.seq = static_cast<int>(windows.seq), arguments.count = static_cast<int>(count);
    launch(arguments, windows.obs + (held - (all - windows.fresh)) * dims_.config.d_input,
           out + first * outs_width(dims_));
  }
}

void WindowKernel::run(const float* frames, std::int64_t count, std::int64_t seq, float* out) {
  std::lock_guard<std::mutex> lock(mutex_);
  reserve(count * seq);
  policy::WindowArguments arguments = weights_;
  arguments.front_hidden = buffers_.front_hidden.as<float>();
  arguments.front_lead = buffers_.front_lead.as<float>();
  arguments.front_step = arguments.seq = static_cast<int>(seq);
  arguments.count = static_cast<int>(count);
  arguments.fresh = static_cast<int>(count * seq);
  launch(arguments, frames, out);
}

// Cooperative: the blocks of the grid wait for each other.
CUresult WindowKernel::start(const Launch& kernel, void** parameters) const {
  const int threads = kernel.shape.team == 0 ? policy::kWindowThreads : kernel.shape.threads;
  if (kernel.shape.team <= 1) {
    return driver().cuLaunchCooperativeKernel(kernel.function, kernel.blocks, 1, 1,
                                              static_cast<unsigned>(threads), 1, 1, kernel.shared_bytes,
                                              stream_.handle(), parameters);
  }
  AttributedLaunch launch(CU_LAUNCH_ATTRIBUTE_COOPERATIVE, kernel.blocks, threads, kernel.shared_bytes,
                          stream_.handle());
  launch.attribute.value.cooperative = 1;
  return driver().cuLaunchKernelEx(&launch.config, kernel.function, parameters, nullptr);
}

// With the addresses that every launch of this kernel has.
policy::WindowArguments WindowKernel::arguments_of(const Launch& kernel,
                                                   policy::WindowArguments arguments) const {
  const Buffers& b = buffers_;
  auto* const mapped = as_pointer<float>(b.host_in.device_address());
  if (kernel.shape.team == 0 && arguments.fresh > kMostDirectFrames) {
    arguments.obs = b.in.as<float>(), arguments.host_obs = mapped;
  } else if (arguments.fresh != 1 || !inline_frame_) {
    arguments.obs = mapped;
  }
  for (int i = 0; i < plan_.buffers; ++i) arguments.values[i] = b.values[i].as<float>();
  arguments.last_hidden = b.last_hidden.as<float>();
  arguments.tagged = b.outputs.device_words();
  arguments.barrier = barrier_.as<unsigned>();
  arguments.decays_input = dims_.decays(arguments.seq) ? 1 : 0;
  return arguments;
}

// Under mutex_. obs: {arguments.fresh, d_input}.
void WindowKernel::launch(policy::WindowArguments arguments, const float* obs, float* out) {
  const Buffers& b = buffers_;
  const Launch& kernel = launch_for(std::int64_t{arguments.count} * arguments.seq);
  auto* const staged = b.host_in.as<float>();
  dims_.pad_frames(obs, arguments.fresh, staged);
  arguments = arguments_of(kernel, arguments);
  if (++sequence_ == 0) ++sequence_;
  arguments.sequence = sequence_;
  try {
    {
      const auto lock = stream_.enter();
      void* parameters[] = {&arguments, staged};
      context_->check(start(kernel, parameters), kernel.shape.team > 0
                                                     ? "cuLaunchKernelEx(policy_window_team)"
                                                     : "cuLaunchCooperativeKernel(policy_window)");
    }
    b.outputs.collect(*context_, stream_.handle(), arguments.sequence,
                      std::int64_t{arguments.count} * outs_width(dims_), spin_microseconds_, out);
  } catch (...) {
    stream_.drain();
    throw;
  }
}

}  // namespace exphil::cuda
