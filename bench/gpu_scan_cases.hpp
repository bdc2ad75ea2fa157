// Scans with random tensors for bench/gpu_scan.cpp: on the host for checks and complete calls, on the device
// for kernel times, and the timer that empties the caches between runs.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "core/half.hpp"
#include "core/scan/call.hpp"
#include "cuda/device/stream.hpp"
#include "cuda/scan/forward.hpp"
#include "test/c_src/support/numbers.hpp"

namespace exphil::bench {

using core::Dtype;
using core::Operand;
using core::ScanCall;
using core::ScanOperand;
using core::ScanShape;
using cuda::driver;
using formulas::Discretization;
using Bytes = std::vector<std::uint8_t>;

inline constexpr std::size_t kFlushBytes = std::size_t{256} << 20;
inline const char* const kRules[] = {"zoh", "foh", "bilinear", "highorder", "poly", "rk4"};

// Uniform values in the range of a trained layer.
struct Range {
  float low, high;
};
inline Range range_of(ScanOperand id) {
  switch (id) {
    case ScanOperand::dt:
      return {0.001f, 0.1f};
    case ScanOperand::z:
      return {-2, 2};
    case ScanOperand::dt_bias:
      return {0, 0.2f};
    default:
      return {-1, 1};
  }
}

// Inputs in host memory. The caller owns the memory of results.
class HostCase {
 public:
  explicit HostCase(const ScanShape& kind, std::uint64_t seed, bool everything = false) : random_(seed) {
    call.shape = kind;
    if (everything) {
      for (const ScanOperand id : {ScanOperand::d, ScanOperand::z, ScanOperand::dt_bias}) call.shape.add(id);
      call.shape.options.dt_softplus = true;
      if (kind.options.direction != core::Direction::both) call.shape.add(ScanOperand::initial_state);
    }
    for (const ScanOperand id : core::all_operands<ScanOperand>()) {
      const Operand operand = core::describe(call.shape, id);
      if (operand.present && operand.flow == core::Flow::in) call.operands[id] = fill(operand, id);
    }
  }

 private:
  void* fill(const Operand& operand, ScanOperand id) {
    if (id == ScanOperand::a) return matrix();
    const std::size_t size = std::min<std::size_t>(4, core::dtype_size(operand.dtype));
    tensors_.emplace_back(operand.bytes());
    Bytes& bytes = tensors_.back();
    const Range range = range_of(id);
    for (std::size_t i = 0; i < bytes.size(); i += size) {
      const float value = random_.uniform(range.low, range.high);
      const std::uint16_t half =
          operand.dtype == Dtype::f16 ? core::f32_to_f16(value) : core::f32_to_bf16(value);
      std::memcpy(&bytes[i], size == 4 ? static_cast<const void*>(&value) : &half, size);
    }
    return bytes.data();
  }
  // Decaying A; a full one is diagonally dominant.
  void* matrix() {
    const ScanShape& p = call.shape;
    std::vector<float> a;
    for (std::int64_t d = 0; d < p.dim; ++d) {
      for (std::int64_t n = 0; n < p.state * (p.full_matrix ? p.state : 1); ++n) {
        const bool off_diagonal = p.full_matrix && n / p.state != n % p.state;
        a.push_back(off_diagonal ? random_.uniform(-0.3f, 0.3f) : random_.uniform(-4.0f, -0.01f));
        if (p.complex) a.push_back(random_.uniform(-30.0f, 30.0f));
      }
    }
    tensors_.emplace_back(a.size() * 4);
    std::memcpy(tensors_.back().data(), a.data(), tensors_.back().size());
    return tensors_.back().data();
  }

  test::Random random_;
  std::vector<Bytes> tensors_;

 public:
  ScanCall call;
};

inline ScanShape kind_of(std::int64_t batch, std::int64_t seq, std::int64_t dim, std::int64_t state,
                         Discretization rule = Discretization::zoh, Dtype dtype = Dtype::f32) {
  ScanShape p;
  p.batch = batch, p.seq = seq, p.dim = dim, p.state = state;
  p.dtype = dtype;
  p.options.discretization = rule;
  return p;
}

inline std::string name_of(const ScanShape& p) {
  const char* algorithms[] = {"auto", "sequential", "chunked"};
  return core::message(p.batch, "x", p.seq, "x", p.dim, "x", p.state, " ", core::dtype_name(p.dtype),
                       p.complex ? " complex" : "", p.full_matrix ? " matrix" : "", " ",
                       kRules[static_cast<int>(p.options.discretization)], " ",
                       algorithms[static_cast<int>(p.options.algorithm)], " b",
                       p.b_layout.constant ? 0 : p.b_layout.groups, " c",
                       p.c_layout.constant ? 0 : p.c_layout.groups, " direction ",
                       static_cast<int>(p.options.direction), p.has(ScanOperand::z) ? " everything" : "");
}

inline std::size_t bytes_of(const ScanShape& shape, ScanOperand id) {
  return core::describe(shape, id).bytes();
}

// Device tensors of one kind of scan: several sets where they are small, filled with random values.
class DeviceCase {
 public:
  // ladder: A is -1, -2, ..., -state for every channel.
  DeviceCase(cuda::Context& context, const ScanShape& kind, bool ladder = false)
      : context_(context), kind_(kind), ladder_(ladder) {
    const auto table = core::describe_operands(kind);
    std::size_t set = 0;
    for (const Operand& operand : table) set += operand.flow == core::Flow::in ? operand.bytes() : 0;
    const int sets = set > (std::size_t{64} << 20) ? 1 : 3;
    buffers_.push_back(context.device_pool().allocate(y_bytes()));
    for (int i = 0; i < sets; ++i) {
      core::ScanOperands<CUdeviceptr> operands;
      for (const ScanOperand id : core::all_operands<ScanOperand>()) {
        if (table[id].present && table[id].flow == core::Flow::in) operands[id] = fill(table[id], id);
      }
      operands[ScanOperand::y] = y();
      operands_.push_back(operands);
    }
  }
  const ScanShape& shape() const { return kind_; }
  const core::ScanOperands<CUdeviceptr>& operands(int run) const {
    return operands_[static_cast<std::size_t>(run) % operands_.size()];
  }
  std::size_t y_bytes() const { return bytes_of(kind_, ScanOperand::y); }
  CUdeviceptr y() const { return buffers_.front().address(); }

 private:
  CUdeviceptr fill(const Operand& operand, ScanOperand id) {
    const std::size_t bytes = operand.bytes(),
                      element = std::min<std::size_t>(4, core::dtype_size(operand.dtype));
    const Range range = id == ScanOperand::a ? Range{-4, -0.01f} : range_of(id);
    buffers_.push_back(context_.device_pool().allocate(bytes));
    const CUdeviceptr to = buffers_.back().address();
    const std::size_t block = std::min(bytes, std::size_t{4} << 20);
    Bytes values(block);
    for (std::size_t i = 0; i + element <= block; i += element) {
      const float value =
          id == ScanOperand::a && ladder_
              ? -1.0f - static_cast<float>(i / element % static_cast<std::size_t>(kind_.state))
              : random_.uniform(range.low, range.high);
      const std::uint16_t half =
          kind_.dtype == Dtype::f16 ? core::f32_to_f16(value) : core::f32_to_bf16(value);
      std::memcpy(&values[i], element == 4 ? static_cast<const void*>(&value) : &half, element);
    }
    for (std::size_t at = 0; at < bytes; at += block) {
      context_.check(driver().cuMemcpyHtoD(to + at, values.data(), std::min(block, bytes - at)),
                     "cuMemcpyHtoD");
    }
    return to;
  }

  cuda::Context& context_;
  ScanShape kind_;
  bool ladder_;
  test::Random random_{7};
  std::vector<cuda::DeviceBuffer> buffers_;  // y first
  std::vector<core::ScanOperands<CUdeviceptr>> operands_;
};

class Timer {
 public:
  // stream: where work is timed; null: on one of its own.
  explicit Timer(cuda::Context& context, CUstream stream = nullptr)
      : context_(context),
        flush_(context.device_pool().allocate(kFlushBytes)),
        own_(context),
        stream_(stream != nullptr ? stream : own_.handle()),
        begin_(context, cuda::Event::Timing::on),
        end_(context, cuda::Event::Timing::on) {}

  double median_us(int runs, const std::function<void(int, CUstream)>& body, CUdeviceptr poison,
                   std::size_t bytes) {
    std::vector<double> times;
    const CUstream stream = stream_;
    for (int run = -2; run < runs; ++run) {
      context_.check(driver().cuMemsetD32Async(poison, 0x7fc00000u, bytes / 4, stream), "cuMemsetD32Async");
      context_.check(
          driver().cuMemsetD32Async(flush_.address(), static_cast<unsigned>(run), kFlushBytes / 4, stream),
          "cuMemsetD32Async");
      begin_.record(stream);
      body(run + 2, stream);
      end_.record(stream);
      end_.synchronize();
      if (run >= 0) times.push_back(1e3 * static_cast<double>(end_.milliseconds_since(begin_)));
    }
    std::sort(times.begin(), times.end());
    return times[times.size() / 2];
  }
  double nothing_us() {
    return median_us(
        51, [](int, CUstream) {}, flush_.address(), 4);
  }

 private:
  cuda::Context& context_;
  cuda::DeviceBuffer flush_;
  cuda::StreamLease own_;
  const CUstream stream_;
  cuda::Event begin_, end_;
};

}  // namespace exphil::bench
