// Scans with random tensors for bench/gpu_scan.cpp: on the host for checks and whole calls, on the device for
// kernel times, and the timer that empties the caches between runs.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "core/half.hpp"
#include "cuda/device/stream.hpp"
#include "cuda/scan/launcher.hpp"
#include "cuda/scan/slice.hpp"
#include "test/c_src/support/numbers.hpp"

namespace exphil::bench {

using core::Dtype;
using core::ScanOutputs;
using core::ScanProblem;
using cuda::driver;
using formulas::Discretization;
using Bytes = std::vector<std::uint8_t>;

inline constexpr std::size_t kFlushBytes = std::size_t{256} << 20;
inline const char* const kRules[] = {"zoh", "foh", "bilinear", "highorder", "poly", "rk4"};

class HostCase {
 public:
  explicit HostCase(const ScanProblem& kind, std::uint64_t seed, bool everything = false)
      : random_(seed), problem(kind) {
    ScanProblem& p = problem;
    const Dtype projection = p.complex ? Dtype::c64 : p.dtype;
    const std::int64_t rows = p.batch * p.seq;
    p.x = add(rows * p.dim, p.dtype, -1, 1);
    p.dt = add(rows * p.dim, p.dtype, 0.001f, 0.1f);
    p.a = matrix();
    p.b = add(p.b_layout.constant ? p.dim * p.state : rows * p.b_layout.groups * p.state, projection, -1, 1);
    p.c = add(p.c_layout.constant ? p.dim * p.state : rows * p.c_layout.groups * p.state, projection, -1, 1);
    if (!everything) return;
    p.d = floats(add(p.dim, Dtype::f32, -1, 1));
    p.z = add(rows * p.dim, p.dtype, -2, 2);
    p.dt_bias = floats(add(p.dim, Dtype::f32, 0, 0.2f));
    p.options.dt_softplus = true;
    if (p.options.direction != core::Direction::both) {
      p.initial_state = floats(add(p.batch * p.dim * p.state, p.complex ? Dtype::c64 : Dtype::f32, -1, 1));
    }
  }

 private:
  static const float* floats(const void* data) { return static_cast<const float*>(data); }
  const void* add(std::int64_t count, Dtype dtype, float low, float high) {
    const std::int64_t numbers = count * (dtype == Dtype::c64 ? 2 : 1);
    const std::size_t size = dtype == Dtype::f16 || dtype == Dtype::bf16 ? 2 : 4;
    Bytes bytes(static_cast<std::size_t>(numbers) * size);
    for (std::int64_t i = 0; i < numbers; ++i) {
      const float value = random_.uniform(low, high);
      const std::uint16_t half = dtype == Dtype::f16 ? core::f32_to_f16(value) : core::f32_to_bf16(value);
      std::memcpy(&bytes[static_cast<std::size_t>(i) * size],
                  size == 4 ? static_cast<const void*>(&value) : &half, size);
    }
    tensors_.push_back(std::move(bytes));
    return tensors_.back().data();
  }
  // Decaying A; a full one is diagonally dominant.
  const float* matrix() {
    const ScanProblem& p = problem;
    std::vector<float> a;
    for (std::int64_t d = 0; d < p.dim; ++d) {
      for (std::int64_t n = 0; n < p.state * (p.full_matrix ? p.state : 1); ++n) {
        const bool off_diagonal = p.full_matrix && n / p.state != n % p.state;
        a.push_back(off_diagonal ? random_.uniform(-0.3f, 0.3f) : random_.uniform(-4.0f, -0.01f));
        if (p.complex) a.push_back(random_.uniform(-30.0f, 30.0f));
      }
    }
    Bytes bytes(a.size() * 4);
    std::memcpy(bytes.data(), a.data(), bytes.size());
    tensors_.push_back(std::move(bytes));
    return reinterpret_cast<const float*>(tensors_.back().data());
  }

  test::Random random_;
  std::vector<Bytes> tensors_;

 public:
  ScanProblem problem;
};

inline ScanProblem kind_of(std::int64_t batch, std::int64_t seq, std::int64_t dim, std::int64_t state,
                           Discretization rule = Discretization::zoh, Dtype dtype = Dtype::f32) {
  ScanProblem p;
  p.batch = batch, p.seq = seq, p.dim = dim, p.state = state;
  p.dtype = dtype;
  p.options.discretization = rule;
  return p;
}

inline std::string name_of(const ScanProblem& p) {
  const char* algorithms[] = {"auto", "sequential", "chunked"};
  return core::message(p.batch, "x", p.seq, "x", p.dim, "x", p.state, " ", core::dtype_name(p.dtype),
                       p.complex ? " complex" : "", p.full_matrix ? " matrix" : "", " ",
                       kRules[static_cast<int>(p.options.discretization)], " ",
                       algorithms[static_cast<int>(p.options.algorithm)], " b",
                       p.b_layout.constant ? 0 : p.b_layout.groups, " c",
                       p.c_layout.constant ? 0 : p.c_layout.groups, " direction ",
                       static_cast<int>(p.options.direction), p.z != nullptr ? " everything" : "");
}

// Device tensors of one kind of problem: several sets where they are small, filled with random values.
class DeviceCase {
 public:
  DeviceCase(cuda::Context& context, const ScanProblem& kind) : context_(context), kind_(kind) {
    const cuda::ScanBytes bytes = cuda::scan_bytes(kind);
    const std::size_t set = 2 * bytes.x + bytes.a + bytes.b + bytes.c;
    const int sets = set > (std::size_t{64} << 20) ? 1 : 3;
    const std::size_t element = core::dtype_size(kind.dtype);
    for (int i = 0; i < sets; ++i) {
      ScanProblem p = kind;
      p.x = fill(bytes.x, element, -1, 1), p.dt = fill(bytes.x, element, 0.001f, 0.1f);
      p.a = static_cast<const float*>(fill(bytes.a, 4, -4, -0.01f));
      p.b = fill(bytes.b, element, -1, 1), p.c = fill(bytes.c, element, -1, 1);
      problems_.push_back(p);
    }
    buffers_.push_back(context.device_pool().allocate(bytes.x));
    out_.y = buffers_.back().as<void>();
    y_bytes_ = bytes.x;
  }
  const ScanProblem& problem(int run) const {
    return problems_[static_cast<std::size_t>(run) % problems_.size()];
  }
  const ScanOutputs& outputs() const { return out_; }
  std::size_t y_bytes() const { return y_bytes_; }
  CUdeviceptr y() const { return buffers_.back().address(); }

 private:
  const void* fill(std::size_t bytes, std::size_t element, float low, float high) {
    buffers_.push_back(context_.device_pool().allocate(bytes));
    const CUdeviceptr to = buffers_.back().address();
    const std::size_t block = std::min(bytes, std::size_t{4} << 20);
    Bytes values(block);
    for (std::size_t i = 0; i + element <= block; i += element) {
      const float value = random_.uniform(low, high);
      const std::uint16_t half =
          kind_.dtype == Dtype::f16 ? core::f32_to_f16(value) : core::f32_to_bf16(value);
      std::memcpy(&values[i], element == 4 ? static_cast<const void*>(&value) : &half, element);
    }
    for (std::size_t at = 0; at < bytes; at += block) {
      context_.check(driver().cuMemcpyHtoD(to + at, values.data(), std::min(block, bytes - at)),
                     "cuMemcpyHtoD");
    }
    return reinterpret_cast<const void*>(to);
  }

  cuda::Context& context_;
  ScanProblem kind_;
  test::Random random_{7};
  std::vector<cuda::DeviceBuffer> buffers_;
  std::vector<ScanProblem> problems_;
  ScanOutputs out_;
  std::size_t y_bytes_ = 0;
};

class Timer {
 public:
  explicit Timer(cuda::Context& context)
      : context_(context),
        flush_(context.device_pool().allocate(kFlushBytes)),
        stream_(context),
        begin_(context, cuda::Event::Timing::on),
        end_(context, cuda::Event::Timing::on) {}

  double median_us(int runs, const std::function<void(int, CUstream)>& body, CUdeviceptr poison,
                   std::size_t bytes) {
    std::vector<double> times;
    const CUstream stream = stream_.handle();
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
  cuda::StreamLease stream_;
  cuda::Event begin_, end_;
};

}  // namespace exphil::bench
