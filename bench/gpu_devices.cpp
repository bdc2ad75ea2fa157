// One long scan, and its gradient, on one GPU and with its time split over several
// (cuda/scan/time_parts.hpp), device memory to device memory.
//   make build/bench/gpu_devices && EXPHIL_NATIVE_KERNELS=kernels build/bench/gpu_devices [SEQ [DIM [RUNS
//   [DT_LOW DT_HIGH]]]]                              1048576 1536 11 0.001 0.1; state 16, batch 1
//
// Wall-clock medians from the call to all devices' being done; results are poisoned before each run, and the
// tensors are far larger than any L2. dt is uniform in its range and A in [-4, -0.01]; the slower states
// decay, the more of a part is scanned twice. The last column: the largest relative error (norm of the
// difference by norm) of any result of the parts from that of one device, at the beginning and the end of
// each part, in sums and states.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "bench/gpu_scan_cases.hpp"
#include "cuda/scan/backward.hpp"
#include "cuda/scan/time_parts.hpp"

namespace {

using namespace exphil;
using namespace exphil::bench;
using Clock = std::chrono::steady_clock;
using Operands = core::ScanOperands<CUdeviceptr>;

constexpr std::int64_t kComparedSteps = 16384;

struct Options {
  std::int64_t seq = 1 << 20, dim = 1536;
  int runs = 11;
  Range dt{0.001f, 0.1f};
};

ScanShape scan_shape(const Options& options) {
  ScanShape shape = kind_of(1, options.seq, options.dim, 16);
  shape.add(ScanOperand::final_state);
  return shape;
}

ScanShape gradient_shape(const Options& options) {
  ScanShape shape = kind_of(1, options.seq, options.dim, 16);
  shape.remove(ScanOperand::y);
  for (const ScanOperand id : {ScanOperand::dy, ScanOperand::grad_x, ScanOperand::grad_dt,
                               ScanOperand::grad_a, ScanOperand::grad_b, ScanOperand::grad_c}) {
    shape.add(id);
  }
  return shape;
}

// The tensors of a whole sequence on the first device, and of each part but the first on its own. The first
// part has the beginning of the whole tensors.
class SplitCase {
 public:
  SplitCase(const std::vector<std::shared_ptr<cuda::Context>>& contexts, const ScanShape& shape,
            const Options& options)
      : contexts_(contexts), shape_(shape), options_(options) {
    whole_ = tensors(*contexts[0], shape.seq, 0);
    for (std::size_t i = 0; i < contexts.size(); ++i) {
      const std::int64_t begin = cuda::time_cut(shape.seq, i, contexts.size()),
                         steps = cuda::time_cut(shape.seq, i + 1, contexts.size()) - begin;
      auto& context = *contexts[i];
      parts_.push_back({&context, steps, i == 0 ? whole_ : tensors(context, steps, begin)});
    }
  }

  const Operands& whole() const { return whole_; }
  const std::vector<cuda::TimePart>& parts() const { return parts_; }

  void poison() const {
    poison(*contexts_[0], whole_, shape_.seq);
    for (const cuda::TimePart& part : parts_) poison(*part.context, part.operands, part.steps);
  }

  // Of the whole or of the parts: each result by name and place.
  std::map<std::string, std::vector<float>> results(bool of_parts) const {
    std::map<std::string, std::vector<float>> values;
    std::int64_t begin = 0;
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      const cuda::TimePart& part = parts_[i];
      cuda::Context& context = of_parts ? *part.context : *contexts_[0];
      const Operands from = of_parts ? part.operands : cuda::from_step(shape_, whole_, begin);
      for (const ScanOperand id : core::all_operands<ScanOperand>()) {
        const Operand operand = core::describe(shape_, id);
        if (!operand.present || operand.flow != core::Flow::out) continue;
        if (id == ScanOperand::final_state && i + 1 < parts_.size()) continue;
        const std::string name = operand.name + std::to_string(i);
        if (!cuda::has_steps(id)) {
          values[name] = read(context, from[id], operand.bytes());
          continue;
        }
        const std::size_t step = operand.bytes() / static_cast<std::size_t>(shape_.seq);
        const auto some = static_cast<std::size_t>(std::min(part.steps, kComparedSteps)) * step;
        values[name + " first"] = read(context, from[id], some);
        values[name + " last"] =
            read(context, from[id] + static_cast<std::size_t>(part.steps) * step - some, some);
      }
      begin += part.steps;
    }
    return values;
  }

 private:
  Operands tensors(cuda::Context& context, std::int64_t steps, std::int64_t begin) {
    const cuda::ContextGuard guard(context);
    Operands operands;
    ScanShape shape = shape_;
    shape.seq = steps;
    for (const ScanOperand id : core::all_operands<ScanOperand>()) {
      const Operand operand = core::describe(shape, id);
      if (!operand.present) continue;
      memory_.push_back(context.device_pool().allocate(operand.bytes()));
      operands[id] = memory_.back().address();
      const std::size_t skipped =
          cuda::has_steps(id)
              ? static_cast<std::size_t>(begin) * (operand.bytes() / static_cast<std::size_t>(steps))
              : 0;
      if (operand.flow == core::Flow::in) fill(context, operand, id, operands[id], skipped);
    }
    return operands;
  }

  // Random numbers over and over, the same at the same place of the whole tensor.
  void fill(cuda::Context& context, const Operand& operand, ScanOperand id, CUdeviceptr to,
            std::size_t skipped) const {
    constexpr std::size_t kFloats = std::size_t{1} << 20;
    const Range range = id == ScanOperand::dt  ? options_.dt
                        : id == ScanOperand::a ? Range{-4, -0.01f}
                                               : Range{-1, 1};
    test::Random random(static_cast<std::uint64_t>(id) + 1);
    std::vector<float> values(kFloats);
    for (float& value : values) value = random.uniform(range.low, range.high);
    for (std::size_t at = 0; at < operand.bytes();) {
      const std::size_t from = (skipped + at) % (4 * kFloats);
      const std::size_t bytes = std::min(4 * kFloats - from, operand.bytes() - at);
      context.check(driver().cuMemcpyHtoD(to + at, values.data() + from / 4, bytes), "cuMemcpyHtoD");
      at += bytes;
    }
  }

  void poison(cuda::Context& context, const Operands& operands, std::int64_t steps) const {
    const cuda::ContextGuard guard(context);
    cuda::StreamLease stream(context);
    ScanShape shape = shape_;
    shape.seq = steps;
    for (const ScanOperand id : core::all_operands<ScanOperand>()) {
      const Operand operand = core::describe(shape, id);
      if (!operand.present || operand.flow != core::Flow::out) continue;
      context.check(
          driver().cuMemsetD32Async(operands[id], 0x7fc00000u, operand.bytes() / 4, stream.handle()),
          "cuMemsetD32Async");
    }
    stream.synchronize();
  }

  static std::vector<float> read(cuda::Context& context, CUdeviceptr from, std::size_t bytes) {
    const cuda::ContextGuard guard(context);
    std::vector<float> values(bytes / 4);
    context.check(driver().cuMemcpyDtoH(values.data(), from, bytes), "cuMemcpyDtoH");
    return values;
  }

  const std::vector<std::shared_ptr<cuda::Context>> contexts_;
  const ScanShape shape_;
  const Options options_;
  std::vector<cuda::DeviceBuffer> memory_;
  Operands whole_;
  std::vector<cuda::TimePart> parts_;
};

double median_us(int runs, const SplitCase& split, const std::function<void()>& body) {
  std::vector<double> times;
  for (int run = -2; run < runs; ++run) {
    split.poison();
    const auto start = Clock::now();
    body();
    const std::chrono::duration<double, std::micro> taken = Clock::now() - start;
    if (run >= 0) times.push_back(taken.count());
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

double largest_error(const std::map<std::string, std::vector<float>>& got,
                     const std::map<std::string, std::vector<float>>& want) {
  double largest = 0;
  for (const auto& [name, values] : want) {
    const double error =
        test::relative_error(got.at(name), std::vector<double>(values.begin(), values.end()));
    // NaN, which the results are poisoned with, is larger than any.
    if (!(error <= largest)) largest = error;
  }
  return largest;
}

void compare(const char* name, const std::vector<std::shared_ptr<cuda::Context>>& contexts,
             const ScanShape& shape, const Options& options,
             const std::function<void(const Operands&)>& on_one,
             const std::function<void(const std::vector<cuda::TimePart>&)>& on_all) {
  const SplitCase split(contexts, shape, options);
  const double one = median_us(options.runs, split, [&] { on_one(split.whole()); });
  const auto want = split.results(false);
  const double all = median_us(options.runs, split, [&] { on_all(split.parts()); });
  std::printf(
      "%s 1x%lldx%lldx16, dt %g to %g: one GPU %.0f us, %zu GPUs %.0f us, %.2f times as fast, error %.1e\n",
      name, static_cast<long long>(shape.seq), static_cast<long long>(shape.dim),
      static_cast<double>(options.dt.low), static_cast<double>(options.dt.high), one, contexts.size(), all,
      one / all, largest_error(split.results(true), want));
  std::fflush(stdout);
}

void run(const Options& options) {
  const int devices = cuda::device_count();
  std::vector<std::shared_ptr<cuda::Context>> contexts;
  for (int i = 0; i < devices; ++i) contexts.push_back(cuda::Context::open(i));
  cuda::Context& first = *contexts[0];
  const cuda::ContextGuard guard(first);
  const ScanShape scan = scan_shape(options), gradient = gradient_shape(options);
  compare(
      "scan", contexts, scan, options,
      [&](const Operands& operands) {
        cuda::StreamLease stream(first);
        cuda::enqueue_scan(first, stream.handle(), scan, operands);
        stream.synchronize();
      },
      [&](const std::vector<cuda::TimePart>& parts) { cuda::scan_time_parts(scan, parts); });
  const cuda::DeviceBuffer scratch =
      first.device_pool().allocate(cuda::scan_gradient_scratch(gradient, first.properties()));
  compare(
      "gradient", contexts, gradient, options,
      [&](const Operands& operands) {
        cuda::StreamLease stream(first);
        cuda::enqueue_scan_gradient(first, stream.handle(), gradient, operands, scratch.address());
        stream.synchronize();
      },
      [&](const std::vector<cuda::TimePart>& parts) { cuda::scan_gradient_time_parts(gradient, parts); });
}

}  // namespace

int main(int count, char** arguments) {
  Options options;
  if (count > 1) options.seq = std::atoll(arguments[1]);
  if (count > 2) options.dim = std::atoll(arguments[2]);
  if (count > 3) options.runs = std::atoi(arguments[3]);
  if (count > 5) {
    options.dt = {static_cast<float>(std::atof(arguments[4])), static_cast<float>(std::atof(arguments[5]))};
  }
  try {
    run(options);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
