// Times the operator of Mamba-2 on the host, and its gradient: milliseconds of wall time with all threads
// (minimum and median of the runs). Its checks are the tests of tag [ssd].
//   make bench && build/bench/host_ssd [runs]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "bench/ssd_cases.hpp"
#include "core/work/parallel.hpp"
#include "host/simd/simd.hpp"
#include "host/ssd/scan.hpp"

namespace {

using namespace exphil;
using Id = core::SsdOperand;

void time_case(const bench::SsdBenchCase& c, bool gradient, int runs) {
  core::SsdCall call;
  call.shape = bench::shape_of(c, gradient);
  core::PerOperand<Id, std::vector<float>> memory;
  std::uint32_t bits = 1;
  for (const Id id : core::all_operands<Id>()) {
    memory[id].resize(core::describe(call.shape, id).bytes() / sizeof(float));
    // In [-1, 1); a decays.
    for (float& v : memory[id]) {
      bits = bits * 1664525u + 1013904223u;
      v = static_cast<float>(bits >> 8) * 0x1p-23f - (id == Id::a ? 2.0f : 1.0f);
    }
    call.operands[id] = memory[id].empty() ? nullptr : memory[id].data();
  }
  std::vector<double> times;
  for (int run = 0; run <= runs; ++run) {
    const auto begin = std::chrono::steady_clock::now();
    gradient ? host::ssd_scan_grad(call) : host::ssd_scan(call);
    const std::chrono::duration<double, std::milli> taken = std::chrono::steady_clock::now() - begin;
    if (run > 0) times.push_back(taken.count());
  }
  std::sort(times.begin(), times.end());
  std::printf("%-18s %-8s %9.2f ms, median %9.2f\n", c.name, gradient ? "gradient" : "scan", times.front(),
              times[times.size() / 2]);
}

}  // namespace

int main(int argc, char** argv) {
  const int runs = argc > 1 ? std::max(1, std::atoi(argv[1])) : 5;
  std::printf("%s, %d threads\n", host::simd_target(), core::threads());
  for (const bench::SsdBenchCase& c : bench::kSsdCases) {
    for (const bool gradient : {false, true}) time_case(c, gradient, runs);
  }
  return 0;
}
